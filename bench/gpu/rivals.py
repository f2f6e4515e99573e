#!/usr/bin/env python3
"""Times swath's GPU reader and its rivals on the rasters that data.py made; every answer is compared with the truth.

    python3 rivals.py run --manifest M.json --out R.json --bin DIR --lib DIR [--rivals DIR] [--deadline UNIX_TIME]

starts every contender in a process of its own (`rivals.py child NAME …`), which reports one raster at a time. One that
crashes, hangs or gives wrong pixels loses that raster and is started again for the rest. The contenders:

    swath          file to device array, swath-gpu read
    gdal           file to host array, GDAL with as many threads as the machine has
    gdal-gpu       file to device array: GDAL into pinned memory, then one copy
    nvtiff-file    file to device array, nvTIFF
    nvtiff-pinned  nvTIFF, with the whole file in pinned memory before the clock starts: no reader, a bound
    nvcomp         pinned tiles to device, then nvCOMP's decoder; no predictor, no placing: no reader, a bound; and the
                   decoder alone, tiles on the device
    zstd           Zstd files only: swath's decoder and nvCOMP's alone, on the same tiles on the device, all of them and
                   few; swath's is started as swath-gpu zstd. Their bytes have to be the same
    ceilings       copies between host and device, and on the device

The first call of each is not counted; the others are kept one by one. Times are in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import queue
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from data import checksum

CONTENDERS = ["ceilings", "swath", "zstd", "gdal-gpu", "gdal", "nvtiff-file", "nvtiff-pinned", "nvcomp"]
# A raster that takes longer than this hangs; the first of a process also pays for imports and the device's start.
ROW_LIMIT = 30.0
START_LIMIT = 60.0
RESTARTS = 5
# Exit status of a child that reported an error and cannot continue.
LEFT = 3
# Result of a raster for which there was no time before the deadline.
LATE = {"ok": False, "late": True, "error": "out of time"}
THREADS = os.cpu_count() or 1
# Numbers of tiles for the comparison of decoders on few tiles, and the size of those tiles.
WINDOWS, WINDOW_TILE = (1, 4, 9, 16, 32, 63), 512


class Refused(Exception):  # noqa: N818 - not a fault: the contender does not do this kind of file
    """Not supported by this contender."""


class Absent(Exception):  # noqa: N818 - not a fault either: something the contender needs is not on this machine
    """Not installed."""


def read_or(path: str, otherwise: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return otherwise


# ------------------------------------------------------------------------------------------------------------ libraries


def find_library(name: str, folders: list[Path]) -> Path | None:
    """The file of a shared library, searched below the folders and in the toolkit."""
    for folder in folders:
        for found in sorted(folder.rglob(f"{name}*")) if folder.is_dir() else []:
            return found
    for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"):
        path = Path(folder) / name
        if path.exists():
            return path
    return None


def load(name: str, folders: list[Path]) -> ctypes.CDLL:
    path = find_library(name, folders)
    try:
        return ctypes.CDLL(str(path or name))
    except OSError as error:
        raise Absent(f"{name} is not here: {error}") from None


def cupy_or_refuse() -> Any:
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        return cupy
    except Exception as error:
        raise Absent(f"no CuPy with a device: {error}") from None


def pinned(cupy: Any, size: int) -> np.ndarray:
    """Pinned host memory as bytes."""
    memory = cupy.cuda.alloc_pinned_memory(size)
    return np.frombuffer(memory, np.uint8, size)


# ------------------------------------------------------------------------------------------------------------ measuring


def repeat(times: int, call: Callable[[], Any]) -> list[float]:
    """Seconds of each call, the first one left out."""
    seconds = []
    for _ in range(times + 1):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def repeat_events(
    cupy: Any, times: int, call: Callable[[], Any], before: Callable[[], Any] | None = None
) -> list[float]:
    """As repeat, by the device's own clock. `before` keeps the device busy while the call is queued."""
    seconds = []
    for _ in range(times + 1):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        if before is not None:
            before()
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return seconds[1:]


# ---------------------------------------------------------------------------------------------------------------- swath


def ask_swath(args: argparse.Namespace, *words: str) -> dict[str, Any]:
    """The answer of swath-gpu."""
    binary = args.bin / "swath-gpu"
    if not binary.exists():
        raise Absent(f"{binary} is missing")
    command = [str(binary), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ROW_LIMIT - 2)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"hung: killed after {ROW_LIMIT - 2:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        tail = " ".join(done.stderr.split())[-300:]
        return {"ok": False, "error": f"exit {done.returncode}: {tail}"}
    answer = json.loads(lines[-1])
    if not answer.get("ok"):
        return {"ok": False, "error": str(answer.get("error", answer))[:300]}
    return answer


def swath(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    answer = ask_swath(args, "read", row["file"], "--repeat", str(args.repeat + 1), "--json")
    if not answer["ok"]:
        return answer
    # As for every contender, the first call is not counted.
    kept = {key: answer[key] for key in ("checksum", "notices", "decode_ms", "place_ms") if key in answer}
    tiles = {key: answer[key] for key in ("device_tiles", "host_tiles", "batches") if key in answer}
    kept["counters"] = {**tiles, **(answer.get("counters") or {})}
    kernels = [ms / 1e3 for ms in answer.get("kernel_ms", [])[1:]]
    return {"ok": True, "seconds": answer["seconds"][1:], "kernel_seconds": kernels, **kept}


# ----------------------------------------------------------------------------------------------------------------- GDAL


def gdal_reader(row: dict[str, Any]) -> Callable[[np.ndarray], None]:
    try:
        import rasterio
    except ImportError as error:
        raise Absent(f"no rasterio: {error}") from None

    def read(out: np.ndarray) -> None:
        with rasterio.open(row["file"], NUM_THREADS=str(THREADS)) as source:
            source.read(1, out=out)

    return read


def gdal(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    read = gdal_reader(row)
    out = np.zeros((row["height"], row["width"]), row["dtype"])
    return {"ok": True, "seconds": repeat(args.repeat, lambda: read(out)), "checksum": checksum(out)}


def gdal_gpu(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    read = gdal_reader(row)
    cupy = cupy_or_refuse()
    host = pinned(cupy, row["pixels_bytes"]).view(row["dtype"]).reshape(row["height"], row["width"])
    device = cupy.zeros(host.shape, host.dtype)

    def both() -> None:
        read(host)
        device.set(host)
        cupy.cuda.Stream.null.synchronize()

    return {"ok": True, "seconds": repeat(args.repeat, both), "checksum": checksum(device)}


# --------------------------------------------------------------------------------------------------------------- nvTIFF


class NvtiffImage(ctypes.Structure):
    """nvtiffImage_t."""

    _fields_ = (
        ("plane_data", ctypes.POINTER(ctypes.c_void_p)),
        ("plane_pitch_bytes", ctypes.POINTER(ctypes.c_size_t)),
        ("num_planes", ctypes.c_uint32),
    )


NVTIFF_NOT_SUPPORTED = 4
NVTIFF_STATUS = {
    2: "invalid parameter", 3: "bad TIFF", 4: "not supported", 5: "allocator failure", 6: "execution failed",
    7: "architecture mismatch", 8: "internal error", 9: "nvCOMP not found", 10: "nvJPEG not found",
    13: "nvJPEG2000 not found",
}  # fmt: skip


def nvtiff(row: dict[str, Any], args: argparse.Namespace, from_pinned: bool) -> dict[str, Any]:
    cupy = cupy_or_refuse()
    cupy.zeros(1)
    # nvTIFF opens these by name; libraries that are already loaded are found whatever the search path.
    for helper in ("libnvcomp.so.5", "libnvjpeg.so.13", "libnvjpeg2k.so.0"):
        with contextlib.suppress(Absent):
            load(helper, args.folders)
    library = load("libnvtiff.so.0", args.folders)

    def call(name: str, *values: Any) -> None:
        status = getattr(library, name)(*values)
        if status == NVTIFF_NOT_SUPPORTED:
            raise Refused("nvTIFF does not support this file")
        if status != 0:
            raise RuntimeError(f"{name}: status {status} ({NVTIFF_STATUS.get(status, 'unknown')})")

    out = cupy.zeros((row["height"], row["width"]), row["dtype"])
    planes = (ctypes.c_void_p * 1)(out.data.ptr)
    pitches = (ctypes.c_size_t * 1)(row["width"] * out.itemsize)
    image = NvtiffImage(planes, pitches, 1)
    cuda_stream = ctypes.c_void_p(cupy.cuda.Stream.null.ptr)
    decoder, params = ctypes.c_void_p(), ctypes.c_void_p()
    call("nvtiffDecoderCreateSimple", ctypes.byref(decoder), cuda_stream)
    call("nvtiffDecodeParamsCreate", ctypes.byref(params))
    file = None
    if from_pinned:
        file = pinned(cupy, row["file_bytes"])
        with Path(row["file"]).open("rb") as source:
            source.readinto(memoryview(file))

    def read() -> None:
        stream = ctypes.c_void_p()
        if file is not None:
            start, size = ctypes.c_void_p(file.ctypes.data), ctypes.c_size_t(file.size)
            call("nvtiffStreamOpen", start, size, ctypes.byref(stream))
        else:
            call("nvtiffStreamOpenFromFile", row["file"].encode(), ctypes.byref(stream))
        try:
            call("nvtiffDecode", stream, decoder, params, ctypes.byref(image), cuda_stream)
        finally:
            cupy.cuda.Stream.null.synchronize()
            call("nvtiffStreamClose", stream)

    try:
        return {"ok": True, "seconds": repeat(args.repeat, read), "checksum": checksum(out)}
    finally:
        call("nvtiffDecodeParamsDestroy", params)
        call("nvtiffDecoderDestroy", decoder, cuda_stream)


# --------------------------------------------------------------------------------------------------------------- nvCOMP


def tiles_of(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and byte counts of the tiles of the first directory of a little-endian TIFF or BigTIFF."""
    with Path(path).open("rb") as file:
        head = file.read(16)
        if head[:2] != b"II":
            raise Refused("a big-endian file")
        big = struct.unpack_from("<H", head, 2)[0] == 43
        start = struct.unpack_from("<Q" if big else "<I", head, 8 if big else 4)[0]
        file.seek(start)
        count = struct.unpack("<Q" if big else "<H", file.read(8 if big else 2))[0]
        size, value_at = (20, 12) if big else (12, 8)
        entries = file.read(size * count)
        found = {}
        for i in range(count):
            entry = entries[i * size : (i + 1) * size]
            tag, kind = struct.unpack_from("<HH", entry)
            length = struct.unpack_from("<Q" if big else "<I", entry, 4)[0]
            if tag in (324, 325):
                dtype = np.dtype({3: "<u2", 4: "<u4", 16: "<u8"}[kind])
                if dtype.itemsize * length <= size - value_at:
                    raw = entry[value_at : value_at + dtype.itemsize * length]
                else:
                    file.seek(struct.unpack_from("<Q" if big else "<I", entry, value_at)[0])
                    raw = file.read(dtype.itemsize * length)
                found[tag] = np.frombuffer(raw, dtype).astype(np.int64)
    return found[324], found[325]


def undo_predictor(cupy: Any, tiles: Any, row: dict[str, Any]) -> Any:
    """Assembles the raster from decoded tiles, which nvCOMP leaves to its caller; for the comparison only."""
    tile, dtype = row["tile"], np.dtype(row["dtype"])
    count = tiles.size // (tile * tile * dtype.itemsize)
    if row["predictor"] == 3:
        rows = tiles.reshape(count * tile, tile * dtype.itemsize)
        summed = cupy.cumsum(rows, axis=1, dtype=cupy.uint8).reshape(count, tile, dtype.itemsize, tile)
        pixels = cupy.ascontiguousarray(summed[:, :, ::-1, :].transpose(0, 1, 3, 2)).view(dtype)
    else:
        pixels = tiles.view(dtype).reshape(count * tile, tile)
        if row["predictor"] == 2:
            pixels = cupy.cumsum(pixels, axis=1, dtype=dtype)
    across, down = -(-row["width"] // tile), -(-row["height"] // tile)
    placed = pixels.reshape(down, across, tile, tile).transpose(0, 2, 1, 3).reshape(down * tile, across * tile)
    return placed[: row["height"], : row["width"]]


class Nvcomp:
    """nvCOMP's decoder on tiles of a file: the requested number around the middle."""

    def __init__(self, row: dict[str, Any], args: argparse.Namespace, count: int | None = None) -> None:
        if row["codec"] not in ("deflate", "zstd"):
            raise Refused("nvCOMP has no such decoder")
        self.cupy = cupy = cupy_or_refuse()
        self.library = load("libnvcomp.so.6", args.folders)
        offsets, counts = tiles_of(row["file"])
        count = min(count or len(offsets), len(offsets))
        first = (len(offsets) - count) // 2
        offsets, counts = offsets[first : first + count], counts[first : first + count]
        # A zlib stream is deflate between 2 bytes of header and 4 of checksum.
        head, tail = (2, 4) if row["codec"] == "deflate" else (0, 0)
        lengths = counts - head - tail
        places = np.concatenate([[0], np.cumsum((lengths + 15) // 16 * 16)])
        self.host = pinned(cupy, int(places[-1]))
        file = np.memmap(row["file"], np.uint8, "r")
        for offset, length, place in zip(offsets, lengths, places):
            self.host[place : place + length] = file[offset + head : offset + head + length]
        self.chunk = row["tile"] ** 2 * np.dtype(row["dtype"]).itemsize
        self.number = count
        self.packed = cupy.zeros(int(places[-1]), cupy.uint8)
        self.packed.set(self.host)
        self.tiles = cupy.zeros(count * self.chunk, cupy.uint8)
        self.sources = cupy.asarray(places[:-1].astype(np.uint64) + np.uint64(self.packed.data.ptr))
        starts = np.arange(count, dtype=np.uint64) * np.uint64(self.chunk)
        self.targets = cupy.asarray(starts + np.uint64(self.tiles.data.ptr))
        self.in_sizes = cupy.asarray(lengths.astype(np.uint64))
        self.out_sizes = cupy.full(count, self.chunk, cupy.uint64)
        self.made = cupy.zeros(count, cupy.uint64)
        self.statuses = cupy.zeros(count, cupy.int32)
        # The options are 64 zero bytes by value, which the x86-64 ABI passes in memory as any struct of that size.
        self.options = type("Options", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_uint8 * 64)]})()
        self.name = {"deflate": "Deflate", "zstd": "Zstd"}[row["codec"]]
        self.stream = ctypes.c_void_p(cupy.cuda.Stream.null.ptr)
        size, needed = ctypes.c_size_t, ctypes.c_size_t()
        total = size(count * self.chunk)
        asked = (size(count), size(self.chunk), self.options, ctypes.byref(needed), total, self.stream)
        self.call("DecompressGetTempSize", *asked)
        self.temp_bytes = needed.value
        self.scratch = cupy.zeros(max(needed.value, 16), cupy.uint8)

    def call(self, function: str, *values: Any) -> None:
        status = getattr(self.library, f"nvcompBatched{self.name}{function}")(*values)
        if status != 0:
            raise RuntimeError(f"nvcompBatched{self.name}{function}: status {status}")

    def decode(self) -> None:
        def pointer(array: Any) -> ctypes.c_void_p:
            return ctypes.c_void_p(array.data.ptr)

        self.call(
            "DecompressAsync", pointer(self.sources), pointer(self.in_sizes), pointer(self.out_sizes),
            pointer(self.made), ctypes.c_size_t(self.number), pointer(self.scratch), ctypes.c_size_t(self.scratch.size),
            pointer(self.targets), self.options, pointer(self.statuses), self.stream,
        )  # fmt: skip

    def copy_and_decode(self) -> None:
        self.packed.set(self.host)
        self.decode()
        self.cupy.cuda.Stream.null.synchronize()

    def failed(self) -> int:
        """Tiles that were not decoded, or only in part."""
        return int(((self.statuses != 0) | (self.made != self.chunk)).sum())


def nvcomp(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    rival = Nvcomp(row, args)
    with_copy = repeat(args.repeat, rival.copy_and_decode)
    alone = repeat_events(rival.cupy, args.repeat, rival.decode)
    if rival.failed():
        return {"ok": False, "error": f"{rival.failed()} of {rival.number} tiles failed"}
    right = checksum(rival.cupy.ascontiguousarray(undo_predictor(rival.cupy, rival.tiles, row)))
    kernels = {"kernel_seconds": alone, "temp_bytes": rival.temp_bytes}
    return {"ok": True, "seconds": with_copy, "checksum": right, **kernels}


def zstd(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    if row["codec"] != "zstd":
        raise Refused("only Zstd is compared so")
    counts = [0, *(WINDOWS if row["tile"] == WINDOW_TILE else ())]
    words = ("--counts", ",".join(map(str, counts)), "--repeat", str(args.repeat))
    answer = ask_swath(args, "zstd", row["file"], *words)
    if not answer["ok"]:
        return answer
    cupy = cupy_or_refuse()
    # Overwritten before each call: it keeps the device busy while the call is queued, and evicts the tiles from the
    # cache, as swath's own copies do.
    spare = cupy.zeros(1 << 30, cupy.uint8)

    def busy() -> None:
        for value in range(4):
            spare.fill(value)

    compared, truth = [], None
    for count, own in zip(counts, answer["rows"]):
        rival = Nvcomp(row, args, count)
        seconds = repeat_events(cupy, args.repeat, rival.decode, busy)
        if rival.failed():
            return {"ok": False, "rival": True, "error": f"nvCOMP: {rival.failed()} of {rival.number} tiles failed"}
        if rival.number != own["tiles"] or checksum(rival.tiles) != own["checksum"]:
            return {"ok": False, "error": f"{own['tiles']} tiles: other bytes than nvCOMP's"}
        if count == 0:
            truth = checksum(cupy.ascontiguousarray(undo_predictor(cupy, rival.tiles, row)))
        compared.append({
            "tiles": rival.number, "whole": count == 0, "bytes": rival.tiles.size,
            "swath_seconds": [ms / 1e3 for ms in own["decode_ms"]], "nvcomp_seconds": seconds,
            "swath_temp_bytes": own["temp_bytes"], "nvcomp_temp_bytes": rival.temp_bytes,
        })  # fmt: skip
        del rival
        cupy.get_default_memory_pool().free_all_blocks()
    return {"ok": True, "checksum": truth, "compared": compared}


# ------------------------------------------------------------------------------------------------------------- ceilings


def ceilings(row: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001 - one shape for all
    cupy = cupy_or_refuse()
    size = 1 << 30
    host, device, other = pinned(cupy, size), cupy.zeros(size, cupy.uint8), cupy.zeros(size, cupy.uint8)
    host[:] = 1
    up = min(repeat_events(cupy, args.repeat, lambda: device.set(host)))
    down = min(repeat_events(cupy, args.repeat, lambda: device.get(out=host)))
    across = min(repeat_events(cupy, args.repeat, lambda: cupy.copyto(other, device)))
    return {"ok": True, "h2d": size / up, "d2h": size / down, "device_copy": 2 * size / across}


CHILDREN: dict[str, Callable[[dict[str, Any], argparse.Namespace], dict[str, Any]]] = {
    "ceilings": ceilings,
    "swath": swath,
    "gdal": gdal,
    "gdal-gpu": gdal_gpu,
    "nvtiff-file": lambda row, args: nvtiff(row, args, False),
    "nvtiff-pinned": lambda row, args: nvtiff(row, args, True),
    "nvcomp": nvcomp,
    "zstd": zstd,
}
# Their errors may break the device's context, so they continue in a new process.
ON_DEVICE = {"gdal-gpu", "nvtiff-file", "nvtiff-pinned", "nvcomp", "zstd", "ceilings"}


def child(args: argparse.Namespace) -> int:
    """One contender over the named rasters: two lines of JSON each, one when it begins and one with the result."""
    warnings.filterwarnings("ignore")
    rows = {row["name"]: row for row in json.loads(args.manifest.read_text())["rows"]}
    rows["machine"] = {"name": "machine"}
    # Libraries may print to standard output, so this process answers on a channel of its own.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(value: dict[str, Any]) -> None:
        output.write(json.dumps(value) + "\n")
        output.flush()

    for name in args.rows.split(","):
        row = rows[name]
        say({"begin": name})
        try:
            answer = CHILDREN[args.contender](row, args)
            if answer["ok"] and answer.get("checksum") != row.get("checksum"):
                answer = {**answer, "ok": False, "error": "wrong pixels"}
        except Refused as error:
            answer = {"ok": False, "refused": True, "error": str(error)[:300]}
        except Absent as error:
            answer = {"ok": False, "absent": True, "error": str(error)[:300]}
        except Exception as error:
            traceback.print_exc()
            say({"row": name, "ok": False, "error": f"{type(error).__name__}: {error}"[:300]})
            if args.contender in ON_DEVICE:
                return LEFT
            continue
        say({"row": name, **answer})
        if args.contender in ON_DEVICE and "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
            sys.modules["cupy"].get_default_pinned_memory_pool().free_all_blocks()
    return 0


# --------------------------------------------------------------------------------------------------------------- parent


def pump(process: subprocess.Popen[str], into: queue.Queue[str | None]) -> None:
    """Moves the lines of a process into a queue, which can be waited on with a limit; None at its end."""
    assert process.stdout is not None
    for line in process.stdout:
        into.put(line)
    into.put(None)


def end(process: subprocess.Popen[str]) -> None:
    """Ends a child and what it started: they are a process group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def contend(name: str, rows: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """All rasters through one contender, in as many processes as it takes."""
    answers: dict[str, Any] = {}
    left = list(rows)
    for _ in range(RESTARTS + 1):
        if not left or time.time() > args.deadline:
            break
        command = [sys.executable, str(Path(__file__).resolve()), "child", name, "--rows", ",".join(left)]
        command += ["--manifest", str(args.manifest), "--bin", str(args.bin), "--lib", str(args.lib)]
        command += ["--repeat", str(args.repeat), *(["--rivals", str(args.rivals)] if args.rivals else [])]
        log = args.logs / f"{name}.log"
        with log.open("a") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        incoming: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=pump, args=(process, incoming), daemon=True).start()
        current, limit = left[0], START_LIMIT
        while left:
            wait = min(limit, args.deadline - time.time())
            try:
                line = incoming.get(timeout=max(wait, 0.1))
            except queue.Empty:
                late = time.time() > args.deadline
                answers[current] = LATE if late else {"ok": False, "error": f"hung: killed after {limit:.0f} s"}
                left.remove(current)
                break
            if line is None:
                code = process.wait()
                # After it reported an error it exits by itself, and a new process continues.
                if code != LEFT:
                    how = signal.Signals(-code).name if code < 0 else f"exit {code}"
                    answers[current] = {"ok": False, "error": f"crashed: {how}"}
                    left.remove(current)
                break
            answer = json.loads(line)
            if "begin" in answer:
                current = answer["begin"]
            else:
                answers[answer.pop("row")] = answer
                left.remove(current)
                current, limit = left[0] if left else "", ROW_LIMIT
        end(process)
    for row in left:
        late = time.time() > args.deadline
        answers[row] = LATE if late else {"ok": False, "error": "not run: it crashed too often"}
    return answers


def output_of(*command: str) -> str:
    """The output of a program, or nothing if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine(args: argparse.Namespace, modules: tuple[str, ...]) -> dict[str, Any]:
    """Names and versions of everything that a figure may depend on."""
    found: dict[str, Any] = {"cpus": THREADS, "system": platform.platform(), "python": platform.python_version()}
    model = [line for line in read_or("/proc/cpuinfo", "").splitlines() if line.startswith("model name")]
    found["cpu"] = model[0].split(":")[1].strip() if model else platform.machine()
    query = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm"
    found["gpu"] = output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").split("\n")[0]
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found["nvcc"] = output_of(nvcc, "--version").split("\n")[-1]
    found["swath_devices"] = output_of(str(args.bin / "swath-gpu"), "devices")
    for module in modules:
        code = f"import sys; sys.path.append(sys.argv[1]); import {module} as m; print(m.__version__)"
        found[module] = output_of(sys.executable, "-c", code, str(args.rivals or ""))
    for library in ("libnvcomp.so.6", "libnvcomp.so.5", "libnvtiff.so.0"):
        found[library] = "here" if find_library(library, args.folders) else "not here"
    return found


def run(args: argparse.Namespace) -> int:
    manifest = json.loads(args.manifest.read_text())
    rows = [row["name"] for row in manifest["rows"]]
    args.logs.mkdir(parents=True, exist_ok=True)
    facts = machine(args, ("numpy", "cupy", "torch", "rasterio"))
    result: dict[str, Any] = {"machine": facts, "manifest": manifest, "repeat": args.repeat, "contenders": {}}
    for name in args.only.split(",") if args.only else CONTENDERS:
        started = time.time()
        result["contenders"][name] = contend(name, ["machine"] if name == "ceilings" else rows, args)
        # Written each time, so that an interrupted run keeps its results.
        args.out.write_text(json.dumps(result, indent=1) + "\n")
        good = sum(answer["ok"] for answer in result["contenders"][name].values())
        print(f"{name}: {good} of {len(result['contenders'][name])} in {time.time() - started:.0f} s", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    parent, one = commands.add_parser("run"), commands.add_parser("child")
    one.add_argument("contender", choices=CHILDREN)
    one.add_argument("--rows", required=True)
    for command in (parent, one):
        command.add_argument("--manifest", type=Path, required=True)
        command.add_argument("--bin", type=Path, required=True, help="folder of swath-gpu")
        command.add_argument("--lib", type=Path, required=True, help="folder of NVIDIA's libraries")
        command.add_argument("--rivals", type=Path, help="folder of the rivals' packages")
        command.add_argument("--repeat", type=int, default=5)
    parent.add_argument("--out", type=Path, required=True)
    parent.add_argument("--logs", type=Path, default=Path("logs"), help="folder for what contenders print")
    parent.add_argument("--only", help="contenders, with commas between them")
    parent.add_argument("--deadline", type=float, default=float("inf"), help="Unix time after which nothing is started")
    args = parser.parse_args()
    args.folders = [folder for folder in (args.lib, args.rivals) if folder]
    if args.rivals:
        # Behind the machine's packages: its numpy and CuPy fit each other.
        sys.path.append(str(args.rivals))
    return child(args) if args.command == "child" else run(args)


if __name__ == "__main__":
    sys.exit(main())
