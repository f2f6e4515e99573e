"""Reads files with every byte changed, or cut everywhere: `damaging.py bytes|cuts TRIES FILE...`; a line for each.

Before each try it writes the position to the file that NOTE names, so that a crash of this process can be reproduced.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import swath

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "differential"))
from mutate import Structure

# No file here decodes to more than a few megabytes.
MEMORY = 2 << 30


def changed(content: bytes, tries: int) -> Iterator[tuple[int, int, bytes]]:
    """Sets every byte to 0, 255 and its complement; takes `tries` of these changes if there are more."""
    step = max(1, len(content) * 3 // tries)
    # A multiple of three would find one of the three values only.
    step += step % 3 == 0
    for number, (at, value) in enumerate((at, value) for at in range(len(content)) for value in (0, 255, None)):
        wanted = content[at] ^ 255 if value is None else value
        if number % step == 0 and wanted != content[at]:
            yield at, wanted, content[:at] + bytes([wanted]) + content[at + 1 :]


def cut(content: bytes, _: int) -> Iterator[tuple[int, int, bytes]]:
    """At every 64th of the length, and where a part of the structure begins or ends."""
    boundaries = Structure(content).boundaries
    places = {len(content) * part // 64 for part in range(64)} | {at + off for at in boundaries for off in (-1, 0, 1)}
    for at in sorted(place for place in places if 0 <= place < len(content)):
        yield at, -1, content[:at]


def digest(content: bytes) -> str:
    array = np.asarray(swath.Dataset(content).read())
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest() + f" {array.dtype} {array.shape}"


def walk(how: str, tries: int, path: Path, note: int) -> dict[str, Any]:
    content = path.read_bytes()
    whole = digest(content)
    done = refused = 0
    slowest, unlike = 0.0, []
    for at, value, damaged in (changed if how == "bytes" else cut)(content, tries):
        os.pwrite(note, f"{path.name}, byte {at}, {value}      ".encode(), 0)
        began = time.monotonic()
        done += 1
        try:
            got = digest(damaged)
        except swath.Error:
            refused += 1
        else:
            if got != whole:
                unlike.append(at)
        slowest = max(slowest, time.monotonic() - began)
    return {"name": path.stem, "tries": done, "refused": refused, "slowest": slowest, "unlike": unlike}


def main() -> None:
    how, tries, *paths = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    note = os.open(os.environ["NOTE"], os.O_WRONLY | os.O_CREAT, 0o600)
    for path in paths:
        print(json.dumps(walk(how, int(tries), Path(path), note)), flush=True)


if __name__ == "__main__":
    main()
