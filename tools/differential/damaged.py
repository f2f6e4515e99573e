"""Mutated files, read by swath and by GDAL: both refuse, both read the same, or the difference has a reason."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
from mutate import Structure, mutated
from outcome import Outcome, text
from pool import Worker

# Codecs whose decoders may round.
LOSSY = ("JPEG", "YCbCr JPEG", "WEBP", "JXL", "JPEG2000")
DIFFERENCES = ("only GDAL reads", "only swath reads", "other shape", "other values")


class Damaged:
    """Draws sound files and damages them."""

    kind = "damaged"

    def __init__(self, files: list[Path], folder: Path) -> None:
        self.files, self.folder = files, folder
        self.known: dict[Path, tuple[bytes, Structure]] = {}
        self.sound: dict[Path, tuple[bool, dict[str, Any]]] = {}
        self.gap = ""
        self.swath, self.gdal = Worker("swath"), Worker("gdal")

    def close(self) -> None:
        self.swath.close()
        self.gdal.close()

    def source(self, rng: random.Random) -> tuple[Path, bytes, Structure]:
        while True:
            path = rng.choice(self.files)
            if path not in self.known:
                content = path.read_bytes()
                self.known[path] = (content, Structure(content))
            content, structure = self.known[path]
            if structure.entries:
                return path, content, structure

    def case(self, index: int, seed: int) -> Outcome:
        rng = random.Random(f"{self.kind} {seed} {index}")
        path, content, structure = self.source(rng)
        changed, how = mutated(content, structure, rng)
        target = self.folder / f"damaged-{index}.tif"
        target.write_bytes(changed)
        try:
            ours, theirs = self.swath.ask(path=str(target)), self.gdal.ask(path=str(target))
            verdict = self.compared(target, ours, theirs)
            if verdict in DIFFERENCES:
                agreed, whole = self.before(path)
                if not agreed:
                    verdict = "not compared"
                elif "shape" in ours and "shape" in whole and self.spared(target, path):
                    verdict = "only swath shows the sound file's pixels"
        finally:
            target.unlink()
        after = Structure(changed) if verdict in ("other values", "other shape") else None
        facts = {
            "source": path.name, "mutation": how, "swath": text(ours), "gdal": text(theirs),
            "compression": str(theirs.get("compression", "")), "gap": self.gap if verdict == "other values" else "",
            "offsets": after.offsets() if after else "", "samples": after.samples() if after else "",
        }  # fmt: skip
        return Outcome(self.kind, index, verdict, facts, changed)

    def before(self, path: Path) -> tuple[bool, dict[str, Any]]:
        """Whether the two read the sound file alike, and what swath read: GDAL cannot judge codecs that it lacks."""
        if path not in self.sound:
            ours, theirs = self.swath.ask(path=str(path)), self.gdal.ask(path=str(path))
            self.sound[path] = (self.compared(path, ours, theirs) in ("equal", "both refuse"), ours)
        return self.sound[path]

    def compared(self, target: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
        for name, answer in (("swath", ours), ("GDAL", theirs)):
            for fault in ("panic", "crash", "hang", "memory"):
                if fault in answer:
                    return f"{name}: {fault}"
        if "large" in ours or "large" in theirs:
            return "not compared"
        if "refused" in ours:
            return "both refuse" if "refused" in theirs else "only GDAL reads"
        if "refused" in theirs:
            return "only swath reads"
        if (ours["shape"], ours["dtype"]) != (theirs["shape"], theirs["dtype"]):
            return "other shape"
        if ours["digest"] == theirs["digest"]:
            return "equal"
        return self.values(target, theirs)

    def values(self, target: Path, theirs: dict[str, Any]) -> str:
        """Compares the arrays themselves: equal numbers may have other bits (NaN), and lossy codecs may round."""
        # A new process: samples that GDAL takes from uninitialised memory are seldom the same again.
        self.gdal.close()
        a, b = self.array(self.swath, target), self.array(self.gdal, target, theirs["digest"])
        if b is None:
            return "GDAL: other values the second time"
        if a is None:
            return "swath: another answer the second time"
        if np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
            return "equal"
        with np.errstate(all="ignore"):
            gap = np.nan_to_num(np.abs(a.astype("c16") - b.astype("c16")))
        if a.dtype.kind in "iu" and theirs.get("compression") in LOSSY and gap.max() <= 4 and gap.mean() <= 0.5:
            return "equal"
        self.gap = f"max {gap.max():g}, {(gap > 0).sum()} of {gap.size}"
        return "other values"

    def array(self, worker: Worker, path: Path, digest: str | None = None) -> np.ndarray | None:
        """The pixels; none if they differ from before."""
        keep = self.folder / f"{worker.kind}.npy"
        again = worker.ask(path=str(path), keep=str(keep))
        found = np.load(keep) if "digest" in again else None
        keep.unlink(missing_ok=True)
        return None if digest and again.get("digest") != digest else found

    def spared(self, target: Path, path: Path) -> bool:
        """Whether swath reads the sound file's pixels, perhaps fewer rows of them, despite the damage."""
        got, want = self.array(self.swath, target), self.array(self.swath, path)
        if got is None or want is None or got.dtype != want.dtype or got.shape[::2] != want.shape[::2]:
            return False
        return np.array_equal(got, want[:, : got.shape[1]], equal_nan=got.dtype.kind in "fc")
