"""Object stores on loopback: moto for S3, Azurite for Azure, a small server of our own for Google's XML interface.

No emulator of Google's store that can be installed here speaks multipart uploads of the XML interface, which is what
clients of object stores use; ours keeps to its rules (sizes, numbers and order of parts, tokens, generations as ETags).

remote_fixtures.py starts them.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
import threading
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

from remote import Answer, Files, Request, Resource, Server, ranged

MIB = 1 << 20
BUCKET = "rasters"
AZURE_ACCOUNT = "swathtests"
AZURE_KEY = base64.b64encode(b"azure-key-that-nobody-may-print").decode()
TOKEN = "token-that-nobody-may-print"


class Proxy(Server):
    """Passes requests on to another server, so that a script can fail them and tests can see them."""

    def __init__(self, upstream: str, **options: Any) -> None:
        self.upstream = urlsplit(upstream).netloc
        super().__init__(**options)

    def respond(self, request: Request) -> Answer:
        hop = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {name: value for name, value in request.headers.items() if name != "connection"}
            hop.request(request.method, request.target, request.body or None, headers)
            answer = hop.getresponse()
            skipped = ("connection", "transfer-encoding", "keep-alive")
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in skipped}
            body = answer.read()
            if request.method != "HEAD":
                kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
            return Answer(answer.status, kept, body)
        finally:
            hop.close()


def fetch(
    method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers (lower case), whatever the status."""
    request = urllib.request.Request(url, body, headers or {}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as fault:
        with fault:
            return fault.code, fault.read(), {k.lower(): v for k, v in fault.headers.items()}


def local_names(text: bytes, name: str) -> list[str]:
    """Texts of all elements of this name, whatever their namespace."""
    return [element.text or "" for element in ET.fromstring(text).iter() if element.tag.rpartition("}")[2] == name]


@dataclass
class Store:
    """A store with one bucket: the options with which swath reaches it, and methods with which tests inspect it."""

    scheme: str
    url: str
    options: dict[str, Any]

    def address(self, key: str) -> str:
        return f"{self.scheme}://{BUCKET}/{key}"

    def at(self, url: str) -> dict[str, Any]:
        """The options with another endpoint: a proxy before the store."""
        return {**self.options, "endpoint": url + urlsplit(str(self.options["endpoint"])).path}

    def object_url(self, key: str = "") -> str:
        return f"{self.url}/{BUCKET}/{quote(key)}" if key else f"{self.url}/{BUCKET}"

    def ask(self, method: str, key: str = "", body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        url = self.object_url(key) + (f"?{query}" if query else "")
        # moto checks that there is a signature, not that it is right.
        return fetch(method, url, body, {"Content-Type": "image/tiff", "Authorization": "AWS tests:tests"})[:2]

    def put(self, key: str, body: bytes) -> None:
        code, answer = self.ask("PUT", key, body)
        assert code in (200, 201), (code, answer)

    def get(self, key: str) -> bytes | None:
        """The object, or none if there is no such object."""
        code, body = self.ask("GET", key)
        assert code in (200, 404), (code, body)
        return body if code == 200 else None

    def uploads(self) -> list[str]:
        """Keys of uploads that were begun and neither completed nor aborted."""
        code, body = self.ask("GET", query="uploads")
        assert code == 200, (code, body)
        return local_names(body, "Key")

    def forget_uploads(self) -> None:
        """Removes the faults of the last test."""
        _, body = self.ask("GET", query="uploads")
        for key, name in zip(local_names(body, "Key"), local_names(body, "UploadId")):
            self.ask("DELETE", key, query=f"uploadId={quote(name)}")


class AzureStore(Store):
    """Signs its requests: Azurite checks them."""

    def ask(self, method: str, key: str = "", body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        path = f"/{BUCKET}/{quote(key)}" if key else f"/{BUCKET}"
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        if method == "PUT" and key:
            headers["x-ms-blob-type"] = "BlockBlob"
        size = str(len(body)) if body else ""
        kind = "image/tiff" if body else ""
        named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        asked = "".join(f"\n{name}:{values[0]}" for name, values in sorted(parse_qs(query).items()))
        resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}{path}{asked}"
        text = f"{method}\n\n\n{size}\n\n{kind}\n\n\n\n\n\n\n{named}{resource}"
        digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
        if body:
            headers["Content-Type"] = kind
        return fetch(method, f"{self.url}{path}" + (f"?{query}" if query else ""), body, headers)[:2]

    def uploads(self) -> list[str]:
        """Azure has no list of them: blocks that were never committed are invisible and expire."""
        return []

    def forget_uploads(self) -> None:
        """Does nothing: Azure has no such list."""


class GcsServer(Files):
    """Google's XML interface: objects by range, and uploads by parts. Every request needs the token, unless public."""

    def __init__(self, **options: Any) -> None:
        self.begun: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.generation = 0
        self.guard = threading.RLock()
        self.public = False
        # The smallest part that is not the last, as in the store itself.
        self.least = 5 * MIB
        super().__init__(**options)

    def respond(self, request: Request) -> Answer:
        if not self.public and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal(401, "AuthenticationRequired", "Authentication required.")
        if request.path.split("/")[1] != BUCKET:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        with self.guard:
            query = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
            if request.method in ("GET", "HEAD"):
                return self._get(request, query)
            act = {"PUT": self._put, "POST": self._post, "DELETE": self._delete}[request.method]
            return act(request, query)

    def _get(self, request: Request, query: dict[str, str]) -> Answer:
        if "uploads" in query:
            begun = [(escape(key), name) for name, (key, _) in self.begun.items()]
            listed = "".join(f"<Upload><Key>{key}</Key><UploadId>{name}</UploadId></Upload>" for key, name in begun)
            return Answer(200, {}, f"<ListMultipartUploadsResult>{listed}</ListMultipartUploadsResult>".encode())
        found = self.files.get(request.path)
        return ranged(request, found) if found else refusal(404, "NoSuchKey", "The specified key does not exist.")

    def _put(self, request: Request, query: dict[str, str]) -> Answer:
        tag = f'"{hashlib.md5(request.body).hexdigest()}"'
        if "uploadId" not in query:
            return self._store(request.path, request.body)
        if query["uploadId"] not in self.begun:
            return refusal(404, "NoSuchUpload", "The requested upload was not found.")
        number = int(query["partNumber"])
        if not 1 <= number <= 10_000:
            return refusal(400, "InvalidArgument", "Part number must be an integer between 1 and 10000.")
        self.begun[query["uploadId"]][1][number] = request.body
        return Answer(200, {"ETag": tag})

    def _post(self, request: Request, query: dict[str, str]) -> Answer:
        if "uploads" in query:
            self.generation += 1
            name = f"upload-{self.generation}"
            self.begun[name] = (request.path.partition("/")[2].partition("/")[2], {})
            xml = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return Answer(200, {"Content-Type": "application/xml"}, xml.encode())
        if query.get("uploadId") not in self.begun:
            return refusal(404, "NoSuchUpload", "The requested upload was not found.")
        _, parts = self.begun[query["uploadId"]]
        numbers = [int(number) for number in local_names(request.body, "PartNumber")]
        tags = [tag.strip('"') for tag in local_names(request.body, "ETag")]
        if numbers != sorted(set(numbers)):
            return refusal(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        known = [hashlib.md5(parts[number]).hexdigest() if number in parts else "" for number in numbers]
        if known != tags:
            return refusal(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if any(len(parts[number]) < self.least for number in numbers[:-1]):
            return refusal(400, "EntityTooSmall", "A part is smaller than the minimum allowed size.")
        del self.begun[query["uploadId"]]
        stored = self._store(request.path, b"".join(parts[number] for number in numbers))
        xml = f"<CompleteMultipartUploadResult><ETag>{stored.headers['ETag']}</ETag></CompleteMultipartUploadResult>"
        return Answer(200, stored.headers, xml.encode())

    def _delete(self, request: Request, query: dict[str, str]) -> Answer:
        if "uploadId" in query:
            return Answer(204) if self.begun.pop(query["uploadId"], None) else refusal(404, "NoSuchUpload", "No.")
        return Answer(204) if self.files.pop(request.path, None) else refusal(404, "NoSuchKey", "No.")

    def _store(self, path: str, body: bytes) -> Answer:
        self.generation += 1
        made = Resource.of(body, self.generation)
        # The ETag does not show the number of parts.
        tag = f'"{hashlib.md5(body).hexdigest()}{self.generation}"'
        self.files[path] = Resource(body, tag, made.modified)
        return Answer(200, {"x-goog-generation": str(self.generation), "ETag": tag})


def refusal(code: int, name: str, message: str) -> Answer:
    xml = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{name}</Code><Message>{message}</Message></Error>"
    return Answer(code, {"Content-Type": "application/xml"}, xml.encode())


class GcsStore(Store):
    """Carries the token."""

    def ask(self, method: str, key: str = "", body: bytes | None = None, query: str = "") -> tuple[int, bytes]:
        url = self.object_url(key) + (f"?{query}" if query else "")
        return fetch(method, url, body, {"Authorization": f"Bearer {TOKEN}"})[:2]
