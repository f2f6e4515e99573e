"""Readers in processes that live for many files; one that dies or hangs is replaced."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MEMORY = 4 << 30
SECONDS = {"swath": 20.0, "gdal": 2.0}


class Worker:
    """A reader: `swath` or `gdal`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """The reader's answer; `crash` or `hang` where there was none."""
        process = self.process or self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self.ended()
        line, deadline = b"", time.monotonic() + SECONDS[self.kind]
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not waiting.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    return {"hang": SECONDS[self.kind]}
                piece = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
                if not piece:
                    return self.ended()
                line += piece
        return json.loads(line)

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, str(Path(__file__).with_name("worker.py")), self.kind, str(MEMORY)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self.process

    def ended(self) -> dict[str, Any]:
        assert self.process is not None
        code = self.process.wait()
        self.process = None
        return {"crash": code}

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None
