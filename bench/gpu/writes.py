#!/usr/bin/env python3
"""Times swath's writes from the GPU and its rivals; every file is read back and compared with what was written.

    python3 writes.py run --dir /dev/shm/swath-writes --out R.json --bin DIR --lib DIR [--rivals DIR] [--size N]
                          [--quick] [--deadline UNIX_TIME] [--cogs FILE.tar]

makes the rasters of data.py as plain TIFFs, then writes each in many ways:

    swath      from device memory, swath-gpu write; from file to file, swath-gpu convert
    gdal       from a host array, GDAL with as many threads as the machine has; from file to file, GDAL's copy
    xrspatial  from a device array, its GPU writer

A fresh file in plain tmpfs grows only as fast as the kernel finds pages, for every writer. So the main rows go to a
tmpfs of huge pages where one may be mounted, some to --dir as well, and a rival always to the folder of its row.

Rivals run in a process of their own (`writes.py serve NAME`), which is started again when it crashes or hangs. swath's
rows come first, so that a deadline cuts rivals. Times are in seconds. Exit status 1 if R.json could not be made;
report.py judges the files.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from data import NODATA, PREDICTORS, checksum, cupy_or_none, finish, make, plain_tiff, word_sum, write_gdal
from rivals import LATE, THREADS, Absent, cupy_or_refuse, end, find_library, machine, pump

Row = dict[str, Any]
KINDS = ("dem", "s2", "lc")
DTYPES = {"dem": "float32", "s2": "uint16", "lc": "uint8"}
CODECS = ("deflate", "zstd", "lzw", "none")
# Limits on device and host memory in the rows with little memory.
DEVICE_LIMIT = 512 << 20
HOST_LIMIT = 512 << 20
# The large raster repeats the first eighth of the terrain: 8 GB out of 16384 x 16384.
REPEATED = 64
# Crops whose COGs travel home together in one file of at most 16 MiB, for validators that are not on the machine.
CROPS = {"dem": 1024, "s2": 1024, "lc": 2048}
CROPS_LIMIT = 15 << 20
HUGE_BYTES = "40G"
# A call that takes longer hangs; a process's first also pays for imports, compilers and the device's start.
CALL_LIMIT = 60.0
START_LIMIT = 60.0
XRSPATIAL_LIMIT = 20.0
# Seconds that a rival may take for all of its rows.
SHARES = {"gdal": 150.0, "xrspatial": 120.0}


# --------------------------------------------------------------------------------------------------------------- rows


def predictor(kind: str, codec: str) -> int:
    return 1 if codec == "none" else PREDICTORS[kind]


def plan(size: int, quick: bool, huge: bool) -> list[Row]:
    """Every row there is, in the order in which swath writes them."""
    main = "huge" if huge else "shm"
    rows: list[Row] = []

    def add(kind: str, codec: str, tile: int, place: str, **more: Any) -> None:
        row: Row = {"task": "write", "kind": kind, "codec": codec, "tile": tile, "cog": False, "folder": place}
        row |= {"main": place == main, **more}
        words = [kind, codec, str(tile)]
        words += ["cog"] * row["cog"] + [row["task"]] * (row["task"] != "write")
        words += [row.get("source", "")] * ("source" in row) + [place] * (place != main)
        row["predictor"] = predictor(kind, codec)
        row["pixels_bytes"] = size * size * np.dtype(DTYPES[kind]).itemsize * row.get("eighths", 8) // 8
        rows.append({"name": "-".join(words) + ("-x8" if "eighths" in row else ""), **row})

    for tile in (512,) if quick else (512, 256):
        for kind in KINDS:
            for codec in CODECS:
                add(kind, codec, tile, main)
    for kind in KINDS:
        for codec in ("deflate", "zstd"):
            add(kind, codec, 512, main, cog=True)
    for kind in KINDS:
        # From a file of another writer, and from one of swath's own, which lists the pieces of its tiles.
        for source in ("gdal",) if quick else ("gdal", "own"):
            add(kind, "zstd", 512, main, cog=True, task="convert", source=source)
    add("lc", "deflate", 512, main, cog=True, task="memory")
    add("dem", "deflate", 512, main, cog=True, task="memory")
    if not quick:
        add("dem", "deflate", 512, main, cog=True, task="memory", eighths=REPEATED)
        add("dem", "zstd", 512, main, cog=True, task="memory", eighths=REPEATED)
    if huge:
        for kind in ("dem", "lc"):
            for codec in ("deflate", "none"):
                add(kind, codec, 512, "shm")
        add("dem", "deflate", 512, "shm", cog=True)
    return rows


def rows_of(rival: str, rows: list[Row]) -> list[Row]:
    """The rows of a rival, the most informative first."""
    mine = [row for row in rows if row["task"] != "memory" and row.get("source") != "own"]
    if rival == "gdal":
        return sorted(mine, key=lambda row: (row["tile"] == 256, not row["main"]))
    plain = [row for row in mine if row["task"] == "write" and row["tile"] == 512 and row["main"]]
    plain = [row for row in plain if row["codec"] != "none"]
    picked = [row for row in plain if not row["cog"] or (row["kind"], row["codec"]) == ("dem", "deflate")]
    # It encodes LZW on one core of the host: the smallest raster first, as the others may take too long.
    return sorted(picked, key=lambda row: (row["codec"] == "lzw", row["codec"] == "lzw" and row["pixels_bytes"]))


# ------------------------------------------------------------------------------------------------------------- rasters


def repeated_checksum(array: Any, times: int) -> str:
    """The checksum of an array repeated `times` times, which may be too large for memory as a whole."""
    words = array.nbytes // 8
    assert array.nbytes % 8 == 0
    total = sum(word_sum(array, first=i * words) for i in range(times))
    return finish(total)


def make_sources(args: argparse.Namespace) -> int:
    """The rasters as plain TIFFs, and the checksum of each."""
    xp = cupy_or_none()
    if xp is None:
        print("no CuPy: numpy makes the arrays, which takes minutes at the full size", file=sys.stderr)
        xp = np
    made: dict[str, Any] = {}
    for kind in KINDS:
        started = time.perf_counter()
        array = make(xp, kind, args.size)
        plain_tiff(args.dir / f"{kind}.tif", array)
        crop = np.ascontiguousarray(array[: CROPS[kind], : CROPS[kind]])
        plain_tiff(args.dir / f"{kind}-crop.tif", crop)
        made[kind] = {"checksum": checksum(array), "crop": crop.shape[0], "crop_checksum": checksum(crop)}
        if kind == "dem":
            made[kind]["repeated"] = repeated_checksum(xp.asarray(array[: args.size // 8]), REPEATED)
        print(f"{kind}: made in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    (args.dir / "sources.json").write_text(json.dumps({"size": args.size, "arrays": xp.__name__, "kinds": made}))
    return 0


def pixels_of(request: Row) -> np.ndarray:
    """The array of one of our plain TIFFs, which is at its end."""
    file, size, dtype = Path(request["source"]), request["size"], np.dtype(DTYPES[request["row"]["kind"]])
    start = file.stat().st_size - size * size * dtype.itemsize
    return np.fromfile(file, dtype, offset=start).reshape(size, size)


# -------------------------------------------------------------------------------------------------------------- rivals


def timed(times: int, out: Path, call: Callable[[], Any]) -> list[float]:
    """Seconds of each call, each to a new file; no second call after a slow one."""
    seconds: list[float] = []
    for _ in range(times):
        out.unlink(missing_ok=True)
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
        if seconds[-1] > 3:
            break
    return seconds


class Gdal:
    """GDAL through rasterio: writes, copies from file to file, and reads back files of others."""

    def __init__(self, args: argparse.Namespace) -> None:  # noqa: ARG002 - one shape for all
        try:
            import rasterio
            import rasterio.shutil
        except ImportError as error:
            raise Absent(f"no rasterio: {error}") from None
        self.rasterio = rasterio
        self.held: tuple[str, np.ndarray] | None = None

    def cog(self, source: Any, out: Path, row: Row) -> None:
        self.rasterio.shutil.copy(
            source, str(out), driver="COG", COMPRESS=row["codec"].upper(), BLOCKSIZE=str(row["tile"]),
            PREDICTOR="NO" if row["predictor"] == 1 else "YES", NUM_THREADS=str(THREADS),
            OVERVIEWS="IGNORE_EXISTING", OVERVIEW_RESAMPLING="AVERAGE",
        )  # fmt: skip

    def write(self, request: Row) -> Row:
        row, out = request["row"], Path(request["out"])
        if row["task"] == "convert":
            call = lambda: self.cog(request["source"], out, row)  # noqa: E731
        else:
            if self.held is None or self.held[0] != request["source"]:
                self.held = (request["source"], pixels_of(request))
            array = self.held[1]
            call = lambda: self.from_array(array, out, row)  # noqa: E731
        with self.rasterio.Env(GDAL_MEM_ENABLE_OPEN="YES", GDAL_NUM_THREADS=str(THREADS)):
            seconds = timed(request["times"], out, call)
        return {"ok": True, "seconds": seconds, "file_bytes": out.stat().st_size}

    def from_array(self, array: np.ndarray, out: Path, row: Row) -> None:
        if not row["cog"]:
            write_gdal(self.rasterio, out, array, row["codec"], row["predictor"], row["tile"])
            return
        height, width = array.shape
        kind = {"float32": "Float32", "uint16": "UInt16", "uint8": "Byte"}[str(array.dtype)]
        name = f"MEM:::DATAPOINTER={array.ctypes.data},PIXELS={width},LINES={height},BANDS=1,DATATYPE={kind}"
        with self.rasterio.open(name, "r+") as source:
            if array.dtype == np.float32:
                source.nodata = NODATA
            self.cog(source, out, row)

    def read(self, request: Row) -> Row:
        with self.rasterio.open(request["file"], NUM_THREADS=str(THREADS)) as source:
            return {"ok": True, "checksum": checksum(source.read(1)), "overviews": len(source.overviews(1))}


class Xrspatial:
    """xrspatial's writer with gpu=True: its own kernels for tiles and predictors, nvCOMP for Deflate and Zstd."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.cupy = cupy_or_refuse()
        # numpy 2.5 has it no longer.
        if not hasattr(np, "row_stack"):
            np.row_stack = np.vstack
        # Its own first file imports every tool it has, scipy too; the GeoTIFF part needs none of them.
        import importlib.machinery
        import types

        folder = next((Path(each) / "xrspatial" for each in sys.path if (Path(each) / "xrspatial").is_dir()), None)
        if folder is None:
            raise Absent(f"no xrspatial in {args.rivals}")
        package = types.ModuleType("xrspatial")
        package.__path__ = [str(folder)]
        package.__spec__ = importlib.machinery.ModuleSpec("xrspatial", None, is_package=True)
        sys.modules["xrspatial"] = package
        try:
            import xarray
            from xrspatial.geotiff import _gpu_decode, to_geotiff
        except ImportError as error:
            raise Absent(f"xrspatial does not start: {error}") from None
        self.array_of, self.to_geotiff = xarray.DataArray, to_geotiff
        self.has_nvcomp = _gpu_decode._get_nvcomp() is not None
        self.held: tuple[str, Any] | None = None

    def put(self, array: Any, out: Path, row: Row) -> None:
        nodata = {"nodata": float(NODATA)} if row["kind"] == "dem" else {}
        self.to_geotiff(
            self.array_of(array, dims=("y", "x")), str(out), compression=row["codec"], tile_size=row["tile"],
            predictor=row["predictor"], cog=row["cog"], gpu=True, **nodata,
        )  # fmt: skip
        self.cupy.cuda.Device().synchronize()

    def write(self, request: Row) -> Row:
        row, out = request["row"], Path(request["out"])
        if self.held is None or self.held[0] != request["source"]:
            self.held = (request["source"], self.cupy.asarray(pixels_of(request)))
        array = self.held[1]
        pool = self.cupy.get_default_memory_pool()
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            # The first call of a kind compiles kernels.
            self.put(array[: 2 * row["tile"], : 2 * row["tile"]].copy(), out, row)
            pool.free_all_blocks()
            seconds = timed(request["times"], out, lambda: self.put(array, out, row))
        notices = sorted({str(each.message)[:200] for each in noted})
        kept = {"nvcomp": self.has_nvcomp, "device_bytes": pool.total_bytes(), "notices": notices}
        pool.free_all_blocks()
        return {"ok": True, "seconds": seconds, "file_bytes": out.stat().st_size, **kept}


SERVERS = {"gdal": Gdal, "xrspatial": Xrspatial}


def serve(args: argparse.Namespace) -> int:
    """Reads requests from standard input, one a line, and answers each with a line."""
    # Libraries may print to standard output, so this process answers on a channel of its own.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if args.name == "gdal":
        warnings.filterwarnings("ignore")
    server: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            server = server or SERVERS[args.name](args)
            answer = getattr(server, request["do"])(request)
        except Absent as error:
            answer = {"ok": False, "absent": True, "error": str(error)[:300]}
        except Exception as error:
            traceback.print_exc()
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"[:300]}
        output.write(json.dumps(answer) + "\n")
        output.flush()
    return 0


class Worker:
    """A rival's process, seen from outside."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name, self.args = name, args
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "serve", self.name]
        command += ["--rivals", str(self.args.rivals)] if self.args.rivals else []
        environment = dict(os.environ)
        library = find_library("libnvcomp.so.5", self.args.folders)
        if self.name == "xrspatial":
            if library:
                # It opens nvCOMP under a name that the wheel does not have.
                links = self.args.dir / "links"
                links.mkdir(exist_ok=True)
                link = links / "libnvcomp.so"
                link.unlink(missing_ok=True)
                link.symlink_to(library.resolve())
                environment["LD_LIBRARY_PATH"] = f"{links}:{environment.get('LD_LIBRARY_PATH', '')}"
            if Path("/usr/local/cuda").is_dir():
                environment.setdefault("CUDA_HOME", "/usr/local/cuda")
        with (self.args.logs / f"writes-{self.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.lines = queue.Queue()
        threading.Thread(target=pump, args=(self.process, self.lines), daemon=True).start()

    def ask(self, request: Row, limit: float) -> Row:
        """The answer, or how the process ended. Its start does not count against the limit."""
        if self.process is None:
            self.start()
            limit += START_LIMIT
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=max(limit, 1))
        except queue.Empty:
            self.stop()
            return {"ok": False, "error": f"killed after {limit:.0f} s"}
        except OSError:
            line = None
        if line is None:
            code = self.process.wait()
            self.stop()
            return {"ok": False, "error": f"crashed: {signal.Signals(-code).name if code < 0 else f'exit {code}'}"}
        return json.loads(line)

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process = None


# --------------------------------------------------------------------------------------------------------------- swath


def swath_gpu(args: argparse.Namespace, *words: Any, limit: float = CALL_LIMIT) -> Row:
    """One call of swath-gpu: its line of JSON."""
    command = [str(args.bin / "swath-gpu"), *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"hung: killed after {limit:.0f} s"}
    except OSError as error:
        return {"ok": False, "error": str(error)}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"ok": False, "error": f"exit {done.returncode}: {' '.join(done.stderr.split())[-300:]}"}
    return json.loads(lines[-1])


def validate(args: argparse.Namespace, file: Path) -> str:
    """Nothing, or why `swath validate` does not accept the file as a COG."""
    command = [str(args.bin / "swath"), "validate", "--full", "--json", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_LIMIT)
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return str(error)[:300]
    # Validators agree that a level one tile wide and several high is untiled, for every writer.
    main, *overviews = answer["levels"]
    wrongly = {f"Overview of index {i} is not tiled" for i, level in enumerate(overviews) if level["tiled"]}
    wrongly |= {"The file is greater than 512xH or 512xW, but is not tiled"} if main["tiled"] else set()
    return "; ".join(error for error in answer["errors"] if error not in wrongly)[:300]


def read_back(args: argparse.Namespace, gdal: Worker, row: Row, file: Path, truth: str) -> dict[str, str]:
    """The result of each reader for a file of swath's: 'equal', 'not run: …' or the fault."""
    found: dict[str, str] = {}

    def judge(reader: str, answer: Row) -> None:
        if answer.get("absent"):
            found[reader] = f"not run: {answer['error']}"
        elif not answer.get("ok"):
            found[reader] = str(answer.get("error"))[:300]
        else:
            found[reader] = "equal" if answer["checksum"] == truth else "pixels differ"

    judge("swath-gpu", swath_gpu(args, "read", file, "--no-kernel-times"))
    # The large raster takes the others too long for what it shows.
    if row["tile"] == 512 and "eighths" not in row:
        judge("swath-cpu", swath_gpu(args, "read", file, "--device", "cpu", "--no-kernel-times"))
        judge("gdal", gdal.ask({"do": "read", "file": str(file)}, CALL_LIMIT))
    if row["cog"]:
        found["validate"] = validate(args, file) or "equal"
    return found


def write_words(row: Row, source: Path, file: Path, size: int, repeat: int) -> list[Any]:
    words: list[Any] = ["convert" if row["task"] == "convert" else "write", source, "--out", file]
    words += ["--repeat", repeat, "--compress", row["codec"], "--tile", row["tile"]]
    words += ["--cog"] if row["cog"] else []
    if row["task"] == "memory":
        words += ["--max-device-memory", DEVICE_LIMIT]
    if "eighths" in row:
        words += ["--rows", size // 8, "--times", row["eighths"]]
    return words


# -------------------------------------------------------------------------------------------------------------- the run


@contextlib.contextmanager
def huge_pages(args: argparse.Namespace) -> Iterator[Path | None]:
    """A tmpfs of huge pages, or nothing if none may be mounted."""
    place = args.dir / "huge"
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"huge=always,size={HUGE_BYTES}", "tmpfs", str(place)]
    mounted = not args.no_mount
    if mounted:
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            mounted = done.returncode == 0
            if not mounted:
                print(f"no tmpfs of huge pages: {done.stderr.strip()}", file=sys.stderr)
        except OSError as error:
            mounted = False
            print(f"no tmpfs of huge pages: {error}", file=sys.stderr)
    try:
        yield place if mounted else None
    finally:
        # Lazily, if a child that was killed still has a file open.
        if mounted and subprocess.run(["umount", str(place)], capture_output=True).returncode:
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
        with contextlib.suppress(OSError):
            place.rmdir()


def sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


class Run:
    """One run: its settings, and its results so far."""

    def __init__(self, args: argparse.Namespace, huge: Path | None) -> None:
        self.args = args
        known = json.loads((args.dir / "sources.json").read_text())
        self.size, self.kinds = known["size"], known["kinds"]
        shm = args.dir / "out"
        shm.mkdir(exist_ok=True)
        self.folders = {"shm": shm, **({"huge": huge} if huge else {})}
        self.rows = plan(self.size, args.quick, huge is not None)
        self.gdal, self.xrspatial = Worker("gdal", args), Worker("xrspatial", args)
        names = {"shm": "/dev/shm" if str(shm).startswith("/dev/shm/") else str(shm), "huge": "tmpfs of huge pages"}
        facts = machine(args, ("numpy", "cupy", "rasterio", "numba"))
        self.found: dict[str, Any] = {
            "machine": facts, "size": self.size, "arrays": known["arrays"], "repeat": args.repeat,
            "folders": {key: names[key] for key in self.folders}, "device_limit": DEVICE_LIMIT,
            "host_limit": HOST_LIMIT, "rows": [{**row, "contenders": {}} for row in self.rows], "identity": [],
            "cogs": [],
        }  # fmt: skip

    def is_late(self) -> bool:
        return time.time() > self.args.deadline

    def keep(self) -> None:
        """Writes the results so far, so that an interrupted run keeps them."""
        self.args.out.write_text(json.dumps(self.found, indent=1) + "\n")

    def add_result(self, row: Row, name: str, answer: Row) -> None:
        next(each for each in self.found["rows"] if each["name"] == row["name"])["contenders"][name] = answer
        self.keep()
        if not answer.get("ok"):
            print(f"{row['name']:32} {name:9} {answer.get('error')}", flush=True)
            return
        seconds = answer["seconds"]
        line = f"{row['name']:32} {name:9} best {row['pixels_bytes'] / min(seconds) / 1e9:6.2f} GB/s"
        line += f", file {answer['file_bytes'] / 1e6:7.1f} MB"
        wrong = {key: value for key, value in answer.get("checks", {}).items() if value != "equal"}
        print(line + (f", {wrong}" if wrong else ""), flush=True)

    def source_of(self, row: Row) -> Path:
        if row["task"] != "convert":
            return self.args.dir / f"{row['kind']}.tif"
        return self.args.dir / f"{row['kind']}-{row['source']}.tif"

    def file_of(self, row: Row) -> Path:
        return self.folders[row["folder"]] / "out.tif"

    def conversion_sources(self) -> None:
        """Deflate GeoTIFFs: GDAL's, or swath's where there is no GDAL, and swath's own."""
        for kind in KINDS:
            plain, own, other = (self.args.dir / f"{kind}{end}.tif" for end in ("", "-own", "-gdal"))
            words = ["write", plain, "--out", own, "--compress", "deflate", "--tile", 512]
            made = swath_gpu(self.args, *words)
            if not made.get("ok"):
                print(f"no {own.name}: {made.get('error')}", flush=True)
                continue
            row = {"task": "write", "kind": kind, "codec": "deflate", "tile": 512, "cog": False}
            row["predictor"] = predictor(kind, "deflate")
            asked = {"do": "write", "row": row, "source": str(plain), "size": self.size, "out": str(other)}
            answer = self.gdal.ask({**asked, "times": 1}, CALL_LIMIT)
            self.found["converted"] = "GDAL" if answer.get("ok") else "swath"
            if not answer.get("ok"):
                shutil.copyfile(own, other)

    def swath(self, row: Row) -> Row:
        if self.is_late():
            return LATE
        file = self.file_of(row)
        file.unlink(missing_ok=True)
        large = "eighths" in row
        # The first call is reported separately.
        repeat = 1 if large else self.args.repeat + 1
        answer = swath_gpu(self.args, *write_words(row, self.source_of(row), file, self.size, repeat))
        if not answer.get("ok"):
            file.unlink(missing_ok=True)
            return {"ok": False, "error": str(answer.get("error", answer))[:300]}
        kept = ("file_bytes", "overviews", "device", "device_tiles", "host_tiles", "batches", "notices", "counters")
        seconds = answer["seconds"]
        known = self.kinds[row["kind"]]
        found: Row = {"ok": True, "seconds": seconds[1:] or seconds, "first": seconds[0]}
        found |= {key: answer[key] for key in (*kept, "host_peak_bytes") if key in answer}
        truth = known["repeated" if large else "checksum"]
        found["checks"] = read_back(self.args, self.gdal, row, file, truth)
        if answer["pixels_bytes"] != row["pixels_bytes"]:
            found["checks"]["size"] = f"{answer['pixels_bytes']} bytes of pixels instead of {row['pixels_bytes']}"
        if row["task"] == "memory":
            device, host = answer["counters"]["peak_bytes"], answer.get("host_peak_bytes")
            found["within"] = device <= DEVICE_LIMIT and host is not None and host < HOST_LIMIT
        file.unlink(missing_ok=True)
        return found

    def identity(self) -> None:
        """Files of the same raster, written in batches of several sizes and twice: they have to be equal."""
        main = self.rows[0]["folder"]
        ways = (("all at once", ()), ("again", ()), ("batches of 1", ("--batch", 1)), ("batches of 3", ("--batch", 3)))
        for codec, cog in (("deflate", False), ("zstd", False), ("deflate", True)):
            row = {"task": "write", "kind": "dem", "codec": codec, "tile": 512, "cog": cog, "folder": main}
            name = f"dem-{codec}-512" + "-cog" * cog
            if self.is_late():
                self.found["identity"].append({"name": name, **LATE})
                continue
            files, error = [], None
            for how, more in ways:
                file = self.file_of(row)
                answer = swath_gpu(self.args, *write_words(row, self.source_of(row), file, self.size, 1), *more)
                if not answer.get("ok"):
                    error = f"{how}: {answer.get('error')}"[:300]
                    break
                files.append({"how": how, "batches": answer.get("batches"), "sha256": sha256(file)})
                file.unlink()
            same = error is None and len({each["sha256"] for each in files}) == 1
            self.found["identity"].append({"name": name, "ok": same, "files": files, "error": error})
            print(f"identity of {name}: {'yes' if same else error or 'no'}", flush=True)
            self.keep()

    def rival(self, name: str, worker: Worker) -> None:
        rows = rows_of(name, self.rows)
        until = min(self.args.deadline, time.time() + SHARES[name])
        absent: Row | None = None
        for row in rows:
            if absent or time.time() > until:
                self.add_result(row, name, absent or LATE)
                continue
            file = self.file_of(row)
            asked = {"do": "write", "row": row, "source": str(self.source_of(row)), "size": self.size}
            limit = XRSPATIAL_LIMIT if name == "xrspatial" else CALL_LIMIT
            asked |= {"out": str(file), "times": 2}
            answer = worker.ask(asked, min(limit, max(self.args.deadline - time.time(), 1)))
            if answer.get("absent"):
                absent = answer
            if answer.get("ok") and name != "gdal":
                back = self.gdal.ask({"do": "read", "file": str(file)}, CALL_LIMIT)
                if back.get("ok") and back["checksum"] != self.kinds[row["kind"]]["checksum"]:
                    answer = {"ok": False, "error": "wrong pixels", "seconds": answer["seconds"]}
                elif not back.get("ok") and not back.get("absent"):
                    answer = {"ok": False, "error": f"GDAL cannot read it: {back['error']}"[:300]}
            self.add_result(row, name, answer)
            file.unlink(missing_ok=True)

    def crops(self) -> None:
        """Small COGs, checked here as the large ones are, and packed for other validators."""
        if self.is_late():
            return
        total = 0
        folder = self.folders["shm"]
        with tarfile.open(self.args.cogs, "w") if self.args.cogs else contextlib.nullcontext() as archive:
            for kind in KINDS:
                for codec in ("deflate", "zstd"):
                    row = {"task": "write", "kind": kind, "codec": codec, "tile": 256, "cog": True}
                    name = f"{kind}-{codec}-{self.kinds[kind]['crop']}.tif"
                    file = folder / name
                    source = self.args.dir / f"{kind}-crop.tif"
                    answer = swath_gpu(self.args, *write_words(row, source, file, self.size, 1))
                    entry: Row = {"name": name, "ok": bool(answer.get("ok")), "error": answer.get("error")}
                    if entry["ok"]:
                        truth = self.kinds[kind]["crop_checksum"]
                        entry["checks"] = read_back(self.args, self.gdal, {**row, "tile": 512}, file, truth)
                        entry["file_bytes"] = file.stat().st_size
                        total += entry["file_bytes"]
                        entry["packed"] = archive is not None and total <= CROPS_LIMIT
                        if entry["packed"]:
                            archive.add(file, name)
                        file.unlink()
                    self.found["cogs"].append(entry)
        self.keep()

    def all(self) -> None:
        self.conversion_sources()
        for row in self.rows:
            self.add_result(row, "swath", self.swath(row))
        self.crops()
        self.identity()
        self.rival("gdal", self.gdal)
        self.rival("xrspatial", self.xrspatial)
        self.keep()


def run(args: argparse.Namespace) -> int:
    # A signal has to unmount and to end the children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    there = args.dir.exists()
    args.dir.mkdir(parents=True, exist_ok=True)
    args.logs.mkdir(parents=True, exist_ok=True)
    try:
        known = json.loads((args.dir / "sources.json").read_text())["size"]
    except (OSError, ValueError, KeyError):
        known = None
    try:
        if known != args.size:
            command = [sys.executable, str(Path(__file__).resolve()), "make", "--dir", str(args.dir)]
            # A process of its own, so that CuPy's memory is gone when swath's is measured.
            if subprocess.run([*command, "--size", str(args.size)]).returncode:
                return 1
        with huge_pages(args) as huge:
            this = Run(args, huge)
            try:
                this.all()
            finally:
                this.gdal.stop()
                this.xrspatial.stop()
    finally:
        if not there and not os.environ.get("SWATH_BENCH_KEEP"):
            shutil.rmtree(args.dir, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    parent, maker, server = (commands.add_parser(name) for name in ("run", "make", "serve"))
    server.add_argument("name", choices=SERVERS)
    for command in (parent, server):
        command.add_argument("--rivals", type=Path, help="folder of the rivals' packages")
    for command in (parent, maker):
        command.add_argument("--dir", type=Path, required=True, help="folder for rasters, in memory")
        command.add_argument("--size", type=int, help="width and height; 16384, or 8192 with --quick")
    parent.add_argument("--quick", action="store_true", help="fewer rows of 8192 x 8192")
    parent.add_argument("--out", type=Path, required=True)
    parent.add_argument("--bin", type=Path, required=True, help="folder of swath and swath-gpu")
    parent.add_argument("--lib", type=Path, required=True, help="folder of NVIDIA's libraries")
    parent.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()), help="folder for what rivals print")
    parent.add_argument("--cogs", type=Path, help="archive to pack small COGs into")
    parent.add_argument("--repeat", type=int, default=4)
    parent.add_argument("--no-mount", action="store_true", help="mount no tmpfs of huge pages")
    parent.add_argument("--deadline", type=float, default=float("inf"), help="Unix time after which nothing is started")
    args = parser.parse_args()
    if getattr(args, "rivals", None):
        # Behind the machine's packages: its numpy and CuPy fit each other.
        sys.path.append(str(args.rivals))
    if args.command == "serve":
        return serve(args)
    args.size = args.size or (8192 if getattr(args, "quick", False) else 16384)
    if args.command == "make":
        return make_sources(args)
    args.folders = [folder for folder in (args.lib, args.rivals) if folder]
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
