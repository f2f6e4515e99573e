"""Files, sources and a server for the tests that open rasters through the Python package."""

from __future__ import annotations

import csv
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import rasterio
from harness import SHARED_CORPUS
from rasterio.transform import Affine

GRID = Affine(10.0, 0.0, 500_000.0, 0.0, -10.0, 4_500_000.0)


def golden_corpus() -> Path | None:
    """The fixtures inside the xarray-spatial wheel (found without importing it), or `SWATH_GOLDEN_CORPUS`."""
    named = os.environ.get("SWATH_GOLDEN_CORPUS")
    if named:
        return Path(named)
    # Installed for its files only, beside the environment's own packages (tools/requirements-files.txt).
    folder = Path(sys.prefix, "files", "xrspatial", "geotiff", "tests", "golden_corpus", "fixtures")
    return folder if folder.is_dir() else None


def georeferenced() -> list[Path]:
    """Files of the shared corpus that are georeferenced."""
    manifest = SHARED_CORPUS / "manifest.csv"
    if not manifest.is_file():
        return []
    with manifest.open(newline="") as file:
        return [SHARED_CORPUS / row["path"] for row in csv.DictReader(file) if row["crs"] or row["transform"]]


def pixels(count: int = 3, height: int = 70, width: int = 90, dtype: str = "uint16") -> np.ndarray:
    """Every sample differs from its neighbours in all three directions."""
    values = np.arange(count * height * width).reshape(count, height, width)
    return (values % 60_000 if np.dtype(dtype).itemsize > 1 else values % 251).astype(dtype)


def write(path: Path | str, array: np.ndarray, overviews: tuple[int, ...] = (), **profile: Any) -> Path:
    """A tiled, georeferenced file by rasterio."""
    count, height, width = array.shape
    settings = {
        "driver": "GTiff",
        "count": count,
        "height": height,
        "width": width,
        "dtype": array.dtype,
        "crs": "EPSG:32633",
        "transform": GRID,
        "tiled": True,
        "blockxsize": 32,
        "blockysize": 16,
        "compress": "deflate",
        **profile,
    }
    if not settings["tiled"]:
        del settings["blockxsize"]
    with rasterio.open(path, "w", **settings) as file:
        file.write(array)
    if overviews:
        with rasterio.open(path, "r+") as file:
            file.build_overviews(overviews, rasterio.enums.Resampling.nearest)
    return Path(path)


@dataclass
class Traffic:
    """Traffic of a server: connections, path and headers of each request, and bytes of bodies that it sent."""

    connections: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


def _named(headers: Any) -> dict[str, str]:
    """Headers by their usual names; clients may write them in any case."""
    return {name.title(): value for name, value in headers.items()}


class _Handler(BaseHTTPRequestHandler):
    """Serves ranges of the server's files."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two writes, and the second would wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.traffic.connections += 1  # type: ignore[attr-defined]

    def do_CONNECT(self) -> None:
        self.server.traffic.requests.append((self.path, _named(self.headers)))  # type: ignore[attr-defined]
        self.send_error(403)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        files: dict[str, Any] = self.server.files  # type: ignore[attr-defined]
        self.server.traffic.requests.append((self.path, _named(self.headers)))  # type: ignore[attr-defined]
        content = files.get(self.path)
        if isinstance(content, str):
            self.send_response(302)
            self.send_header("Location", content)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if isinstance(content, threading.Event):
            content.wait(60)
            self.close_connection = True
            return
        if content is None or isinstance(content, int):
            self.send_error(content or 404)
            return
        asked = self.headers.get("Range")
        status, part = 200, content
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(content) - int(last))
            stop = min(len(content), int(last) + 1) if first and last else len(content)
            if start >= len(content):
                self.send_error(416)
                return
            status, part = 206, content[start:stop]
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
        self.end_headers()
        if body:
            self.server.traffic.bodies.append(len(part))  # type: ignore[attr-defined]
            self.wfile.write(part)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@contextmanager
def served(files: dict[str, Any], traffic: Traffic | None = None) -> Iterator[str]:
    """A loopback server of these files (by their path, with the slash); yields its address.

    For a text the server redirects, for a number it answers with that status, and for an event it waits silently.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.files = files  # type: ignore[attr-defined]
    server.traffic = traffic or Traffic()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        # A proxy for other machines must not be used for loopback.
        with mock.patch.dict(os.environ, {"no_proxy": "127.0.0.1,localhost"}):
            yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
