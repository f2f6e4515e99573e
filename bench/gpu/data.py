#!/usr/bin/env python3
"""Makes the rasters of the GPU benchmark, and records the checksums that a reader has to reach.

The files are too large to carry to a GPU machine, so they are made on it: with CuPy where there is one, else numpy.
GDAL (rasterio) writes them where it is found, since its files are what readers meet; else `swath convert` does.

    python3 data.py --dir /dev/shm/swath-bench [--quick] [--only CODEC,CODEC] [--size N] [--swath BIN] [--rivals DIR]

writes DIR/<kind>-<codec>-<tile>.tif and DIR/manifest.json: one entry per file, with the checksum of its pixels.

The checksum takes the array's bytes (rows from the top, little-endian samples, no padding) as little-endian 64-bit
words w_0, w_1 …, the last one filled up with zero bytes. With wrapping 64-bit arithmetic it is

    0xD6E8FEB86659FD93 * sum over i of (w_i XOR (i * 0x9E3779B97F4A7C15))

as 16 hexadecimal digits. It does not protect against malice. It is quick in every language here, and sees a wrong
sample, a tile in the wrong place and a missing row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

PLACE = 0x9E3779B97F4A7C15
SPREAD = 0xD6E8FEB86659FD93
WORD = (1 << 64) - 1
NODATA = -9999
THREADS = os.cpu_count() or 1

# kind, codec, tile. Deflate and Zstd at every tile size, since that is where decoders differ most; the others where
# usual.
FULL = [
    *((kind, "deflate", tile) for kind in ("dem", "s2", "lc") for tile in (256, 512, 1024)),
    *((kind, "zstd", tile) for kind in ("dem", "s2", "lc") for tile in (256, 512, 1024)),
    ("dem", "lzw", 512), ("s2", "lzw", 256), ("s2", "lzw", 512), ("lc", "lzw", 512),
    ("dem", "none", 512), ("s2", "none", 512), ("lc", "none", 512),
]  # fmt: skip
QUICK = [
    ("dem", "deflate", 256), ("dem", "deflate", 512), ("s2", "deflate", 512), ("lc", "deflate", 512),
    ("dem", "zstd", 512), ("s2", "lzw", 256), ("lc", "lzw", 512), ("dem", "none", 512),
]  # fmt: skip
PREDICTORS = {"dem": 3, "s2": 2, "lc": 1}
# How amplitudes fall with frequency (power 1/f^2.6 and 1/f^2). At 16384 x 16384 deflate then gains 1.4, 1.25 and 7
# times, as on real terrain in float, Sentinel-2 bands and land cover.
SLOPES = {"dem": 1.3, "s2": 1.0, "lc": 1.3}


def cupy_or_none() -> Any:
    """CuPy, if it is installed and sees a device."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.zeros(1).sum().item()
        return cupy
    except Exception:
        return None


# ------------------------------------------------------------------------------------------------------------- checksum


def finish(total: int) -> str:
    return f"{(total * SPREAD) & WORD:016x}"


def checksum(array: Any) -> str:
    """The checksum of a numpy or CuPy array (see the top of this file)."""
    return finish(word_sum(array))


def word_sum(array: Any, first: int = 0) -> int:
    """An array's part of the sum that a checksum is made of, if its words are those from the given one on."""
    xp = np if isinstance(array, np.ndarray) else sys.modules["cupy"]
    flat = xp.ascontiguousarray(array).reshape(-1).view(xp.uint8)
    whole = flat.size // 8 * 8
    words = flat[:whole].view(xp.uint64)
    total = 0
    if whole < flat.size:
        tail = np.zeros(8, np.uint8)
        tail[: flat.size - whole] = flat[whole:] if xp is np else flat[whole:].get()
        total = int(tail.view("<u8")[0]) ^ (((first + words.size) * PLACE) & WORD)
    # Positions in a chunk are those of the first chunk plus an offset: they are computed once.
    step = 1 << 20 if xp is np else 1 << 26
    places = xp.arange(min(step, max(words.size, 1)), dtype=xp.uint64) * xp.uint64(PLACE)

    def part(start: int) -> int:
        chunk = words[start : start + step]
        moved = places[: chunk.size] + xp.uint64(((first + start) * PLACE) & WORD)
        return int(xp.bitwise_xor(chunk, moved, out=moved).sum(dtype=xp.uint64))

    starts = range(0, words.size, step)
    if xp is np:
        with ThreadPoolExecutor(THREADS) as pool:
            total += sum(pool.map(part, starts))
    else:
        total += sum(map(part, starts))
    return total


# --------------------------------------------------------------------------------------------------------------- arrays


def fractal(xp: Any, size: int, seed: int, slope: float) -> Any:
    """A field whose amplitudes fall as frequency^-slope, with zero mean and unit deviation."""
    random = xp.random.RandomState(seed)
    fy = xp.fft.fftfreq(size)[:, None].astype(xp.float32)
    fx = xp.fft.rfftfreq(size)[None, :].astype(xp.float32)
    radius = xp.sqrt(fx * fx + fy * fy)
    radius[0, 0] = 1
    phase = random.random_sample(radius.shape).astype(xp.float32) * xp.float32(2 * np.pi)
    spectrum = (radius ** xp.float32(-slope)) * xp.exp(1j * phase)
    del radius, phase
    spectrum[0, 0] = 0
    field = xp.fft.irfft2(spectrum, s=(size, size)).astype(xp.float32)
    return (field - field.mean()) / field.std()


def make(xp: Any, kind: str, size: int) -> np.ndarray:
    """Terrain in steps of 1 cm with holes, reflectance with a sensor's noise, or land cover classes."""
    if kind == "dem":
        ground = xp.rint((fractal(xp, size, 1, SLOPES["dem"]) * 500 + 1200) * 100) / xp.float32(100)
        ground = ground.astype(xp.float32)
        ground[fractal(xp, size, 2, 2.0) < -2.0] = NODATA
        made = ground
    elif kind == "s2":
        noise = xp.random.RandomState(3).standard_normal((size, size)).astype(xp.float32) * 25
        made = xp.clip(fractal(xp, size, 4, SLOPES["s2"]) * 900 + 3000 + noise, 0, 10_000).astype(xp.uint16)
    else:
        field = fractal(xp, size, 11, SLOPES["lc"])
        edges = xp.quantile(field[::16, ::16], xp.linspace(0.08, 0.95, 11))
        made = xp.digitize(field, edges).astype(xp.uint8)
    return made if xp is np else made.get()


# ---------------------------------------------------------------------------------------------------------------- files


def plain_tiff(path: Path, array: np.ndarray) -> None:
    """An uncompressed TIFF in strips, for `swath convert` to start from."""
    height, width = array.shape
    row = width * array.itemsize
    rows = max(1, (1 << 20) // row)
    strips = -(-height // rows)
    counts = [min(rows, height - i * rows) * row for i in range(strips)]
    nodata = f"{NODATA}\0".encode() if array.dtype == np.float32 else b""
    tags: list[tuple[int, int, bytes]] = [
        (256, 4, np.array([width], "<u4").tobytes()),
        (257, 4, np.array([height], "<u4").tobytes()),
        (258, 3, np.array([array.itemsize * 8], "<u2").tobytes()),
        (259, 3, np.array([1], "<u2").tobytes()),
        (262, 3, np.array([1], "<u2").tobytes()),
        (273, 4, b""),
        (277, 3, np.array([1], "<u2").tobytes()),
        (278, 4, np.array([rows], "<u4").tobytes()),
        (279, 4, np.array(counts, "<u4").tobytes()),
        (339, 3, np.array([3 if array.dtype == np.float32 else 1], "<u2").tobytes()),
        *([(42113, 2, nodata)] if nodata else []),
    ]
    directory = 8
    outside = directory + 2 + 12 * len(tags) + 4
    pixels = outside + sum(len(value) + 8 for _, _, value in tags) + 8 * strips
    pixels = -(-pixels // 4096) * 4096
    offsets = (np.arange(strips, dtype=np.uint64) * rows * row + pixels).astype("<u4").tobytes()
    tags = [(tag, kind, offsets if tag == 273 else value) for tag, kind, value in tags]
    entries, values = b"", b""
    for tag, kind, value in tags:
        count = len(value) // {2: 1, 3: 2, 4: 4}[kind]
        if len(value) <= 4:
            place = value.ljust(4, b"\0")
        else:
            place = np.array([outside + len(values)], "<u4").tobytes()
            values += value + b"\0" * (-len(value) % 8)
        entries += np.array([tag, kind], "<u2").tobytes() + np.array([count], "<u4").tobytes() + place
    head = b"II*\0" + np.array([directory], "<u4").tobytes() + np.array([len(tags)], "<u2").tobytes()
    with path.open("wb") as out:
        out.write(head + entries + b"\0\0\0\0" + values)
        out.seek(pixels)
        array.tofile(out)


def write_gdal(rasterio: Any, path: Path, array: np.ndarray, codec: str, predictor: int, tile: int) -> None:
    options: dict[str, Any] = {"tiled": True, "blockxsize": tile, "blockysize": tile, "NUM_THREADS": str(THREADS)}
    if codec != "none":
        options |= {"compress": codec, "predictor": predictor}
    if array.dtype == np.float32:
        options["nodata"] = NODATA
    height, width = array.shape
    with rasterio.open(
        path, "w", driver="GTiff", dtype=str(array.dtype), count=1, height=height, width=width, **options
    ) as out:
        out.write(array, 1)


def write_swath(swath: str, source: Path, path: Path, codec: str, predictor: int, tile: int) -> None:
    predictor = 1 if codec == "none" else predictor
    command = [swath, "convert", str(source), str(path), "--compress", codec, "--tile", str(tile)]
    command += ["--predictor", str(predictor), "--overviews", "none"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer files of 8192 x 8192 instead of 16384 x 16384")
    parser.add_argument("--only", help="codecs, with commas between them: no files of others")
    parser.add_argument("--size", type=int, help="another width and height")
    parser.add_argument("--swath", default="swath", help="the CLI, which writes the files where rasterio is missing")
    parser.add_argument("--rivals", type=Path, help="folder of Python packages that rasterio may be in")
    args = parser.parse_args()
    size = args.size or (8192 if args.quick else 16384)
    if args.rivals:
        sys.path.append(str(args.rivals))
    warnings.filterwarnings("ignore")
    try:
        import rasterio

        writer = f"rasterio {rasterio.__version__} / GDAL {rasterio.__gdal_version__}"
    except ImportError as error:
        print(f"no rasterio ({error}): swath writes the files", file=sys.stderr)
        rasterio = None
        writer = "swath"
    xp = cupy_or_none()
    if xp is None:
        print("no CuPy: numpy makes the arrays, which takes minutes at the full size", file=sys.stderr)
        xp = np
    args.dir.mkdir(parents=True, exist_ok=True)
    codecs = args.only.split(",") if args.only else None
    wanted = [row for row in (QUICK if args.quick else FULL) if codecs is None or row[1] in codecs]
    rows = []
    for kind in (kind for kind in PREDICTORS if any(row[0] == kind for row in wanted)):
        started = time.perf_counter()
        array = make(xp, kind, size)
        truth = checksum(array)
        print(f"{kind}: made in {time.perf_counter() - started:.1f} s, checksum {truth}", file=sys.stderr)
        plain = args.dir / f"{kind}-plain.tif"
        if rasterio is None:
            plain_tiff(plain, array)
        for _, codec, tile in (row for row in wanted if row[0] == kind):
            started = time.perf_counter()
            predictor = PREDICTORS[kind] if codec != "none" else 1
            path = args.dir / f"{kind}-{codec}-{tile}.tif"
            path.unlink(missing_ok=True)
            if rasterio is not None:
                write_gdal(rasterio, path, array, codec, predictor, tile)
            else:
                write_swath(args.swath, plain, path, codec, predictor, tile)
            rows.append({
                "name": path.stem, "file": str(path.resolve()), "kind": kind, "codec": codec, "predictor": predictor,
                "tile": tile, "dtype": str(array.dtype), "width": size, "height": size, "pixels_bytes": array.nbytes,
                "file_bytes": path.stat().st_size, "checksum": truth,
            })  # fmt: skip
            print(f"{path.stem}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
        plain.unlink(missing_ok=True)
    manifest = {"writer": writer, "arrays": xp.__name__, "size": size, "rows": rows}
    (args.dir / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
