"""Random overviews: swath's against those of GDAL's COG driver, pixel by pixel."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from harness import Swath
from outcome import Outcome
from test_write_overviews import METHODS, TYPES, both, check
from writing import pixels, write

KERNELS = ("bilinear", "cubic", "lanczos")


class Overviews:
    kind = "overviews"

    def __init__(self, folder: Path, swath: Swath) -> None:
        self.folder, self.swath = folder, swath

    def close(self) -> None:
        pass

    def case(self, index: int, seed: int) -> Outcome:
        rng = random.Random(f"{self.kind} {seed} {index}")
        method, dtype, bands = rng.choice(METHODS), rng.choice(TYPES), rng.choice((1, 1, 2, 3, 4))
        # At least one side is longer than a tile, or there is no overview.
        width, height = rng.randint(129, 500), rng.choice((rng.randint(1, 500), rng.randint(129, 400)))
        if rng.random() < 0.5:
            width, height = height, width
        kind = rng.choice(("smooth", "noise", "holes", "flat"))
        array = pixels((bands, height, width), dtype, rng.randrange(1 << 30), kind)
        facts = {"method": method, "array": f"{dtype} {bands}x{height}x{width} {kind}"}
        profile, mask = {}, None
        way = rng.choice(("none", "none", "nodata", "mask"))
        # GDAL spreads NaN in kernels, and gives 0 for the mode of pixels that all have a negative nodata value.
        if way == "nodata" and np.dtype(dtype).kind in "iuf":
            profile["nodata"] = rng.choice((0, 7, 100))
            array[:, height // 4 : height // 2, width // 4 : width // 2] = profile["nodata"]
        elif way == "mask":
            mask = np.where(np.random.default_rng(index).random((height, width)) < 0.3, 0, 255).astype("u1")
        facts["holes"] = f"{way} {profile.get('nodata', '')}".strip()
        source = write(self.folder / "overviews.tif", array, mask, **profile)
        content = b""
        try:
            check(method, both(self.swath, self.folder, source, method))
            verdict = "equal"
        except AssertionError as error:
            verdict, content = "other overview", source.read_bytes()
            facts["told"] = str(error)[:500]
        for name in ("overviews.tif", "ours.tif", "gdal.tif"):
            (self.folder / name).unlink(missing_ok=True)
        return Outcome(self.kind, index, verdict, facts, content)
