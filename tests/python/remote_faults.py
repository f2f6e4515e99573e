"""Faults of a server, and scripts that say when they occur."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from remote import Answer, Fault, Request, Respond, Script


def status(code: int, **headers: str) -> Fault:
    """This status instead of the answer; header names with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, _respond: Answer(code, named, b"the server has a bad day")


def redirect(location: str, code: int = 302) -> Fault:
    return status(code, Location=location)


def silent(end: str) -> Fault:
    """No answer at all: the connection is closed or reset, or nothing happens (`hang`)."""
    return lambda _request, _respond: Answer(0, silent=True, end=end)


def after(end: str) -> Fault:
    """The server handles the request, and the response is lost."""

    def lose(_: Request, respond: Respond) -> Answer:
        return replace(respond(), silent=True, end=end)

    return lose


def cut(part: float, end: str) -> Fault:
    """The body ends early (0: right after the headers)."""

    def stop(_: Request, respond: Respond) -> Answer:
        answer = respond()
        return replace(answer, cut=int(len(answer.body) * part), end=end)

    return stop


def drip(seconds: float = 1.0) -> Fault:
    return lambda _request, respond: replace(respond(), drip=seconds)


def padding(size: int) -> Fault:
    return lambda _request, respond: replace(respond(), padding=size)


def changed(change: Callable[[Answer], Answer]) -> Fault:
    """Changes the response that the server would send; leaves responses without success as they are."""

    def bend(_: Request, respond: Respond) -> Answer:
        answer = respond()
        return change(answer) if answer.status in (200, 206) else answer

    return bend


def _with(answer: Answer, **headers: str) -> Answer:
    return replace(answer, headers={**answer.headers, **{name.replace("_", "-"): v for name, v in headers.items()}})


def _content_range(answer: Answer, start: int = 0, stop: int = 0, total: int = 0) -> Answer:
    """Each number changed by this amount."""
    text = answer.headers.get("Content-Range")
    if text is None:
        return answer
    span, _, size = text.removeprefix("bytes ").partition("/")
    first, _, last = span.partition("-")
    moved = f"bytes {max(0, int(first) + start)}-{int(last) + stop}/{int(size) + total}"
    return _with(answer, Content_Range=moved)


def _multipart(answer: Answer) -> Answer:
    span = answer.headers.get("Content-Range", "")
    body = f"--part\r\nContent-Range: {span}\r\n\r\n".encode() + bytes(answer.body) + b"\r\n--part--\r\n"
    headers = {name: value for name, value in answer.headers.items() if name != "Content-Range"}
    return replace(answer, headers={**headers, "Content-Type": "multipart/byteranges; boundary=part"}, body=body)


def _compressed(answer: Answer) -> Answer:
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(bytes(answer.body)) + packer.flush()
    return replace(_with(answer, Content_Encoding="gzip"), body=body)


def whole(request: Request, respond: Respond) -> Answer:
    """Behaves as a server that does not know ranges."""
    request.headers.pop("range", None)
    return respond()


def _poured(answer: Answer) -> Answer:
    """Chunks that look right until the last one, which is broken."""
    body = b"\x07" * (len(answer.body) + 1000)
    pieces = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return replace(_with(answer, Transfer_Encoding="chunked"), body=chunked)


def _shorter(answer: Answer) -> Answer:
    """A server that announces less than was requested, and sends that."""
    kept = answer.body[: max(1, len(answer.body) // 2)]
    return replace(_content_range(answer, stop=len(kept) - len(answer.body)), body=kept)


# Faults that a retry overcomes.
PASSING: dict[str, Fault] = {
    **{f"status {code}": status(code) for code in (408, 429, 500, 502, 503, 504)},
    "status 429 with Retry-After": status(429, Retry_After="0"),
    "status 503 with Retry-After": status(503, Retry_After="1"),
    "closed at once": silent("close"),
    "reset at once": silent("reset"),
    "closed after the headers": cut(0.0, "close"),
    "reset after the headers": cut(0.0, "reset"),
    "closed in the body": cut(0.5, "close"),
    "reset in the body": cut(0.5, "reset"),
}

# Responses that no caller may accept, however often they come.
LYING: dict[str, Fault] = {
    "shorter range": changed(_shorter),
    "Content-Range starts later": changed(lambda answer: _content_range(answer, start=16, stop=16)),
    "Content-Range ends later": changed(lambda answer: _content_range(answer, stop=16)),
    "Content-Range ends earlier": changed(lambda answer: _content_range(answer, stop=-16)),
    "Content-Range of another file": changed(lambda answer: _content_range(answer, total=4096)),
    "Content-Range in words": changed(lambda answer: _with(answer, Content_Range="all of it")),
    "surplus": changed(lambda answer: replace(answer, body=bytes(answer.body) + b"surplus")),
    "Content-Length too large": changed(
        lambda answer: replace(_with(answer, Content_Length=str(len(answer.body) + 99)), cut=len(answer.body))
    ),
    "Content-Length too small": changed(
        lambda answer: _with(answer, Content_Length=str(len(answer.body) // 2), Connection="close")
    ),
    "other bytes, of no stated length, and too many": changed(_poured),
    "gzip": changed(_compressed),
    "multipart/byteranges": changed(_multipart),
    "no Content-Range": changed(
        lambda answer: replace(answer, headers={k: v for k, v in answer.headers.items() if k != "Content-Range"})
    ),
}


def at(faults: Mapping[int, Fault]) -> Script:
    """Faults by the number of the request."""
    return lambda request: faults.get(request.number)


def always(fault: Fault) -> Script:
    return lambda _: fault


def first(count: int, fault: Fault, method: str | None = None, query: str = "") -> Script:
    """A fault for the first requests of a kind."""
    left = iter(range(count))

    def choose(request: Request) -> Fault | None:
        meant = (method is None or request.method == method) and query in request.query
        return fault if meant and next(left, None) is not None else None

    return choose


def at_random(rate: float, seed: int, faults: Mapping[str, Fault], counts: Counter[str] | None = None) -> Script:
    """Fails a share of requests, chosen by path, range and number of earlier requests for it, so that the order of
    threads does not matter."""
    seen: Counter[tuple[str, str]] = Counter()
    names = sorted(faults)

    def choose(request: Request) -> Fault | None:
        key = (request.path, request.headers.get("range", ""))
        seen[key] += 1
        chance = random.Random(f"{seed} {key} {seen[key]}")
        if chance.random() >= rate:
            return None
        name = chance.choice(names)
        if counts is not None:
            counts[name] += 1
        return faults[name]

    return choose
