"""Random conversions of sound files: GDAL reads the same pixels and metadata from the result as from the source."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from harness import Refused, Swath, difference
from outcome import Outcome
from rasterio.enums import ColorInterp
from rasterio.windows import Window

LOSSLESS = ("none", "packbits", "lzw", "deflate", "zstd", "lzma", "lerc", "lerc_deflate", "lerc_zstd")
METHODS = ("nearest", "average", "bilinear", "cubic", "mode", "min", "max")
# Larger sources take too long.
MAX_PIXELS = 600_000
# Items about the writer's own file or its pixels, which differ on purpose.
OWN_TAGS = ("STATISTICS_", "OVERVIEW_RESAMPLING")


WIDER = ("uint16", "int16", "uint32", "int32", "float32", "float64")


def options(rng: random.Random, width: int, height: int, bands: int, dtype: str) -> dict[str, str | None]:
    """Options of `swath convert`; `None` for those without a value."""
    chosen: dict[str, str | None] = {"--compress": rng.choice(LOSSLESS)}

    def perhaps(chance: float, name: str, *values: str) -> None:
        if rng.random() < chance:
            chosen[name] = rng.choice(values) if values else None

    perhaps(0.4, "--cog")
    perhaps(0.4, "--predictor", "auto", "none", "horizontal", "float")
    if "--cog" in chosen or rng.random() < 0.6:
        perhaps(0.8, "--tile", "16", "32", "48", "64", "128", "256", *(("64,32", "16,128") * ("--cog" not in chosen)))
    else:
        chosen["--strips"] = str(rng.choice((0, 1, 2, 7, 16, 100)))
    perhaps(0.3, "--overviews", "none", "1", "2", "2,4", "3")
    perhaps(0.3, "--resampling", *METHODS)
    perhaps(0.2, "--bigtiff", "yes", "no")
    perhaps(0.2, "--big-endian")
    perhaps(0.3, "--interleave", "band", "pixel")
    perhaps(0.2, "--sparse")
    perhaps(0.2, "--statistics", "yes", "no")
    perhaps(0.2, "--threads", "1", "3")
    wider = [each for each in WIDER if each != dtype and np.can_cast(dtype, each, "safe")]
    if wider and rng.random() < 0.2:
        chosen["--dtype"] = rng.choice(wider)
    if (chosen["--compress"] or "").startswith("lerc"):
        perhaps(0.4, "--max-z-error", "0.5", "1", "3.25")
    if rng.random() < 0.3:
        x, y = rng.randrange(width), rng.randrange(height)
        chosen["--window"] = f"{x},{y},{rng.randint(1, width - x)},{rng.randint(1, height - y)}"
    if rng.random() < 0.25:
        chosen["--bands"] = ",".join(str(rng.randint(1, bands)) for _ in range(rng.randint(1, min(bands, 5))))
    return chosen


def tags(dataset: Any) -> dict[str, str]:
    return {key: value for key, value in dataset.tags().items() if not key.startswith(OWN_TAGS)}


def band_tags(dataset: Any, band: int) -> dict[str, str]:
    return {key: value for key, value in dataset.tags(band).items() if not key.startswith(OWN_TAGS)}


def opened(path: Path) -> Any:
    """Opens a file with GDAL, CMYK as inks: GDAL would convert it to RGBA, which has another number of bands."""
    dataset = rasterio.open(path)
    if dataset.tags(ns="IMAGE_STRUCTURE").get("SOURCE_COLOR_SPACE") != "CMYK":
        return dataset
    dataset.close()
    return rasterio.open(f"GTIFF_RAW:{path}")


def only_nodata(a: Any, b: Any, bands: list[int], want: np.ndarray, got: np.ndarray) -> bool:
    """Whether pixels differ only where each file has its nodata value."""
    for index, band in enumerate(bands):
        before, after = a.nodatavals[band - 1], b.nodatavals[index]
        if before is None or after is None:
            return False
        # The source states the value with the digits of its own type.
        empty = want[index] == np.asarray(before).astype(a.dtypes[band - 1]).astype(want.dtype)
        other = got[index] != want[index]
        if not np.all(empty[other]) or not np.all(got[index][other] == after):
            return False
    return True


def compared(source: Path, target: Path, chosen: dict[str, str | None]) -> str | None:
    """Differences between result and source as GDAL sees them."""
    with opened(source) as a, opened(target) as b:
        bands = [int(each) for each in (chosen.get("--bands") or "").split(",") if each] or list(a.indexes)
        column, row, width, height = (
            int(each) for each in (chosen.get("--window") or f"0,0,{a.width},{a.height}").split(",")
        )
        window = Window(column, row, width, height)
        want, got = a.read(bands, window=window), b.read()
        want = want.astype(chosen.get("--dtype") or want.dtype)
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"pixels: {difference(got, want)}"
        error = float(chosen.get("--max-z-error") or 0)
        if error and want.dtype.kind in "iuf":
            # Whole numbers are kept to less than one exactly; a float may be rounded once more.
            room = error * (1 + 1e-6) + (np.nanmax(np.abs(want), initial=0) * 1e-6 if want.dtype.kind == "f" else 0)
            if not np.allclose(got.astype("f8"), want.astype("f8"), rtol=0, atol=room, equal_nan=True):
                return f"pixels by more than {error}: {difference(got, want)}"
            return None
        if not np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"):
            what = "nodata pixels" if "--dtype" in chosen and only_nodata(a, b, bands, want, got) else "pixels"
            return f"{what}: {difference(got, want)}"
        want_mask, got_mask = a.dataset_mask(window=window), b.dataset_mask()
        if bands == list(a.indexes) and not np.array_equal(got_mask, want_mask):
            # The pixels of the alpha band are equal by now.
            alpha = "--dtype" in chosen and all(each.colorinterp[-1] == ColorInterp.alpha for each in (a, b))
            return f"{'mask by alpha' if alpha else 'mask'}: {(got_mask != want_mask).sum()} of {want_mask.size} differ"
        if a.crs != b.crs:
            return f"reference system: {b.crs}, not {a.crs}"
        placed = not a.gcps[0] and not a.transform.is_identity
        if placed and not np.allclose(list(b.transform), list(a.window_transform(window)), rtol=1e-12, atol=1e-12):
            return f"transform: {tuple(b.transform)[:6]}, not {tuple(a.window_transform(window))[:6]}"
        for what in ("nodatavals", "descriptions", "units", "scales", "offsets", "colorinterp"):
            left = [getattr(a, what)[band - 1] for band in bands]
            right = list(getattr(b, what))
            if str(left) != str(right):
                return f"{what}: {right}, not {left}"
        if tags(a) != tags(b):
            return f"tags: {tags(b)}, not {tags(a)}"
        for index, band in enumerate(bands):
            if band_tags(a, band) != band_tags(b, index + 1):
                return f"tags of band {band}: {band_tags(b, index + 1)}, not {band_tags(a, band)}"
    return None


class Converted:
    kind = "converted"

    def __init__(self, files: list[Path], folder: Path, swath: Swath) -> None:
        self.files, self.folder, self.swath = files, folder, swath
        self.sound: dict[Path, tuple[int, int, int, str] | None] = {}

    def close(self) -> None:
        pass

    def size(self, path: Path) -> tuple[int, int, int, str] | None:
        """Width, height, bands and type of a file that swath and GDAL read alike."""
        if path not in self.sound:
            self.sound[path] = None
            try:
                with rasterio.open(path) as dataset:
                    if dataset.width * dataset.height * dataset.count <= MAX_PIXELS:
                        want = dataset.read()
                        size = (dataset.width, dataset.height, dataset.count, str(want.dtype))
                        got = self.swath.dump(path)
                        same = got.dtype == want.dtype and np.array_equal(got, want, equal_nan=want.dtype.kind in "fc")
                        self.sound[path] = size if same else None
            except (rasterio.errors.RasterioError, Refused, TypeError):
                pass
        return self.sound[path]

    def case(self, index: int, seed: int) -> Outcome:
        rng = random.Random(f"{self.kind} {seed} {index}")
        size = None
        while size is None:
            source = rng.choice(self.files)
            size = self.size(source)
        chosen = options(rng, *size)
        target = self.folder / "converted.tif"
        words = [word for pair in chosen.items() for word in pair if word is not None]
        run = self.swath.run("convert", source, target, "-q", *words)
        facts = {"source": source.name, "options": " ".join(words), "swath": run.stderr.strip()}
        try:
            if run.timed_out or run.code not in (0, 2) or "panicked" in run.stderr:
                verdict = "swath: hang" if run.timed_out else "swath: crash"
            elif run.code == 2:
                verdict = "swath refuses"
            else:
                mismatch = compared(source, target, chosen)
                verdict = "equal" if mismatch is None else f"other {mismatch.split(':')[0]}"
                facts["message"] = mismatch or ""
        except rasterio.errors.RasterioError as error:
            verdict = "GDAL does not read it"
            facts["gdal"] = str(error)
        finally:
            content = target.read_bytes() if target.exists() else b""
            target.unlink(missing_ok=True)
        return Outcome(self.kind, index, verdict, facts, content)
