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
# Pixels and masks of an overview: ours, GDAL's.
Level = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def shadowed(method: str, levels: list[Level], without: list[Level], nodata: int) -> None:
    """Compares files of RGBA and nodata with GDAL's, band by band, and alpha with that of a file without nodata.

    A nodata value is no opacity. GDAL 3.12 applies it to alpha too: it adds one to an alpha that happens to be the
    nodata value, and fills transparent pixels with it, so that they are half opaque in an overview where it is 100.
    Rasterio takes the mask of such a file from its alpha alone.
    """
    for band in range(3):
        check(method, [(a[[band]], b[[band]], a[band] != nodata, b[band] != nodata) for a, b, _, _ in levels])
    alphas = [(ours[3:], gdal[3:]) for (ours, *_), (_, gdal, *_) in zip(levels, without, strict=True)]
    check(method, [(a, b, np.ones(a.shape[1:], bool), np.ones(b.shape[1:], bool)) for a, b in alphas])


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
            levels = both(self.swath, self.folder, source, method)
            if "nodata" in profile and array.dtype == np.uint8 and bands == 4:
                without = both(self.swath, self.folder, write(source, array), method)
                shadowed(method, levels, without, profile["nodata"])
            else:
                check(method, levels)
            verdict = "equal"
        except AssertionError as error:
            verdict, content = "other overview", write(source, array, mask, **profile).read_bytes()
            facts["message"] = str(error)[:500]
        for name in ("overviews.tif", "ours.tif", "gdal.tif"):
            (self.folder / name).unlink(missing_ok=True)
        return Outcome(self.kind, index, verdict, facts, content)
