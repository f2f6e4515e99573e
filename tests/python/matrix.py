#!/usr/bin/env python3
"""Every way into `swath.to_geotiff` and back: one list of cases for the stand-ins, and for real CuPy and torch.

    python3 matrix.py --out R.json [--only GROUP,...] [--dir DIR]

runs the cases of each group with the `cupy` and `torch` that can be imported, prints the names of cases that failed,
and writes R.json. A failing case does not stop the others. `make test` runs it on the fake driver with the stand-ins of
`stand_ins`, the GPU bundle on a GPU with the real libraries; it needs no test framework.

A case passes if the file has the right pixels and metadata, was encoded by the CPU or the GPU as requested, has exactly
the bytes of every other file of the same samples, metadata and encoder, and if there was no warning.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import swath
from swath import _write

HEIGHT, WIDTH, TILE = 45, 70, 32
CRS = "EPSG:32633"
TRANSFORM = (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0)
NODATA = -9999
NAMES = ("one", "two")


class WrongError(Exception):
    """What a case found."""


class LeftOutError(Exception):
    """Why a case was not run."""


def module(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        __import__(name)
    except ImportError:
        return None
    return sys.modules[name]


# Samples ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Samples in memory (bands, rows, columns), samples of the expected file, and the keywords that convert them."""

    held: np.ndarray
    stored: np.ndarray
    # Keywords of `to_geotiff` for every container.
    words: dict[str, Any] = field(default_factory=dict)
    # Keywords for plain arrays only: a DataArray has attributes or encoding instead.
    bare: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    encoding: dict[str, Any] = field(default_factory=dict)
    # Samples of plain arrays, if they are not `held`.
    bare_held: np.ndarray | None = None
    nodata: float | None = None
    scales: tuple[float, ...] = (1.0, 1.0)
    offsets: tuple[float, ...] = (0.0, 0.0)


def _kinds() -> dict[str, Kind]:
    raw = (np.arange(2 * HEIGHT * WIDTH).reshape(2, HEIGHT, WIDTH) % 251).astype("int16")
    hidden = np.zeros(raw.shape, bool)
    hidden[:, 10:20, 30:41] = True
    hidden[1, 40:, :5] = True
    holes = np.where(hidden, NODATA, raw).astype("int16")
    floats = np.where(hidden, np.nan, raw).astype("float32")
    scales, offsets = (0.5, 2.0), (10.0, 0.0)
    unpacked = floats * np.float32(scales).reshape(2, 1, 1) + np.float32(offsets).reshape(2, 1, 1)
    fill = {"nodata": NODATA}
    return {
        "integer": Kind(raw, raw),
        "float": Kind(raw * np.float32(0.25), raw * np.float32(0.25)),
        "NaN to nodata": Kind(floats, holes.astype("float32"), bare=fill, attrs={"_FillValue": NODATA}, nodata=NODATA),
        "masked": Kind(
            floats,
            holes,
            bare={**fill, "dtype": "int16"},
            encoding={"dtype": "int16", "_FillValue": NODATA},
            nodata=NODATA,
        ),
        "scaled": Kind(
            unpacked,
            holes,
            bare={**fill, "scales": scales, "offsets": offsets},
            encoding={"dtype": "int16", "_FillValue": NODATA, "scales": scales, "offsets": offsets},
            bare_held=holes,
            nodata=NODATA,
            scales=scales,
            offsets=offsets,
        ),
        "truth": Kind(hidden, hidden.astype("uint8")),
        "cast": Kind(raw * 0.5, raw * np.float32(0.5), words={"dtype": "float32"}),
    }


KINDS = _kinds()


def lengthened(kind: Kind, count: int) -> Kind:
    """A kind with only its first bands."""

    def cut(values: dict[str, Any]) -> dict[str, Any]:
        return {key: value[:count] if isinstance(value, tuple) else value for key, value in values.items()}

    return Kind(
        kind.held[:count],
        kind.stored[:count],
        kind.words,
        cut(kind.bare),
        kind.attrs,
        cut(kind.encoding),
        None if kind.bare_held is None else kind.bare_held[:count],
        kind.nodata,
        kind.scales[:count],
        kind.offsets[:count],
    )


# Containers and libraries -------------------------------------------------------------------------------------------

BARE = ("bare", "bare, bands first", "bare, bands last")
LABELLED = (
    "DataArray",
    "DataArray, bands first",
    "DataArray, bands last",
    "DataArray, columns first",
    "Dataset of one",
    "Dataset of two",
)
CONTAINERS = (*BARE, *LABELLED)
# Libraries whose arrays are on the GPU.
ON_GPU = ("cupy", "cupy view", "torch", "dask cupy")
LIBRARIES = ("numpy", "cupy", "cupy view", "torch", "torch on the host", "dask", "dask cupy")


def band_count(container: str) -> int:
    return 2 if "bands" in container or container.endswith("two") else 1


def chunks_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Chunks that end inside tiles."""
    return tuple(length if length <= 2 else 24 if place % 2 else 20 for place, length in enumerate(shape))


def held_by(library: str, host: np.ndarray) -> Any:
    """These samples as an array of a library."""
    if library == "numpy":
        return host
    if library == "torch on the host":
        return need("torch").from_numpy(np.ascontiguousarray(host))
    if library == "torch":
        return need("torch").from_numpy(np.ascontiguousarray(host)).cuda()
    if library == "cupy":
        return need("cupy").asarray(host)
    if library == "cupy view":
        # Every second column of a larger array, from the right to the left.
        wide = np.zeros((*host.shape[:-1], 2 * host.shape[-1]), host.dtype)
        wide[..., ::-2] = host
        return need("cupy").asarray(wide)[..., ::-2]
    arrays = need("dask.array")
    if library == "dask":
        return arrays.from_array(host, chunks=chunks_of(host.shape))
    if library == "dask cupy":
        return arrays.from_array(need("cupy").asarray(host), chunks=chunks_of(host.shape), asarray=False)
    raise AssertionError(library)


def need(name: str) -> Any:
    found = module(name)
    if found is None:
        raise LeftOutError(f"no {name} here")
    return found


def contained(container: str, library: str, kind: Kind, *, placed: bool) -> tuple[Any, dict[str, Any]]:
    """The object to write, and the keywords that go with it; `placed` says whether it has coordinates."""
    words = {"tile_size": TILE, **kind.words}
    if container in BARE:
        host = kind.held if kind.bare_held is None else kind.bare_held
        words |= {**kind.bare, "band_descriptions": NAMES[: len(host)]}
        words |= {"crs": CRS, "transform": TRANSFORM} if placed else {}
        if container == "bare":
            return held_by(library, host[0]), words
        if container == "bare, bands first":
            return held_by(library, host), {**words, "band_axis": 0}
        return held_by(library, np.ascontiguousarray(np.moveaxis(host, 0, -1))), {**words, "band_axis": 2}
    xarray = need("xarray")
    coords: dict[str, Any] = {}
    if placed:
        coords["x"] = TRANSFORM[2] + (np.arange(WIDTH) + 0.5) * TRANSFORM[0]
        coords["y"] = TRANSFORM[5] + (np.arange(HEIGHT) + 0.5) * TRANSFORM[4]
        coords["spatial_ref"] = ((), 0, {"spatial_ref": CRS})
    if container.startswith("Dataset"):
        variables = {name: _variable(library, kind, band) for band, name in enumerate(NAMES[: len(kind.held)])}
        return xarray.Dataset(variables, coords), words
    if container in ("DataArray", "DataArray, columns first"):
        variable = _variable(library, kind, 0)
        data = xarray.DataArray(variable, coords, name=NAMES[0])
        if container == "DataArray, columns first":
            turned = held_by(library, np.ascontiguousarray(kind.held[0].T))
            data = data.transpose("x", "y").copy(data=turned)
        # The constructor drops it.
        data.encoding = variable.encoding
        return data, words
    dims: tuple[str, ...] = ("band", "y", "x")
    host = kind.held
    if container == "DataArray, bands last":
        dims, host = ("y", "x", "band"), np.ascontiguousarray(np.moveaxis(host, 0, -1))
    data = xarray.DataArray(held_by(library, host), {**coords, "band": [1, 2]}, dims)
    data.attrs, data.encoding = {**kind.attrs, "long_name": NAMES}, kind.encoding
    return data, words


def _variable(library: str, kind: Kind, band: int) -> Any:
    """One band as a variable of xarray's, with the scale of that band only."""
    encoding = dict(kind.encoding)
    for many, one in (("scales", "scale_factor"), ("offsets", "add_offset")):
        if many in encoding:
            encoding[one] = encoding.pop(many)[band]
    return need("xarray").Variable(("y", "x"), held_by(library, kind.held[band]), kind.attrs, encoding)


DEVICES: dict[str, dict[str, Any]] = {
    "device unset": {},
    'device="cpu"': {"device": "cpu"},
    'device="cuda"': {"device": "cuda"},
    'device="auto"': {"device": "auto"},
    "gpu=True": {"gpu": True},
    "gpu=False": {"gpu": False},
    'device="cuda", on_gpu_failure="auto"': {"device": "cuda", "on_gpu_failure": "auto"},
    'on_gpu_failure="auto"': {"on_gpu_failure": "auto"},
}


def encoder_of(device: dict[str, Any], *, on_gpu: bool) -> str:
    """The device that has to encode: the one that the caller names, else the one that holds the samples."""
    word = device.get("device") or {True: "cuda", False: "cpu", None: None}[device.get("gpu")]
    if word == "auto":
        word = "cuda"
    return word or ("cuda" if on_gpu else "cpu")


# Destinations -------------------------------------------------------------------------------------------------------


class Pipe:
    """An object whose only method is `write`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(self.parts[-1])


SINKS = ("None", "path", "Path", "BytesIO", "file", "write only", "fsspec", "obstore")


def written(sink: str, folder: Path, data: Any, words: dict[str, Any]) -> bytes:
    """The file that a destination received; the call has to return its target, and leave no other file behind."""
    path: Any = None
    target: Any = None
    if sink == "None":
        return swath.to_geotiff(data, None, **words)
    if sink in ("path", "Path", "file"):
        path = folder / "out.tif"
    if sink == "path":
        target = str(path)
    elif sink == "Path":
        target = path
    elif sink == "BytesIO":
        target = io.BytesIO()
    elif sink == "write only":
        target = Pipe()
    elif sink == "file":
        target = path.open("wb")
    elif sink == "fsspec":
        need("fsspec")
        target = "memory://matrix/out.tif"
    elif sink == "obstore":
        target = (need("obstore").store.MemoryStore(), "a/out.tif")
    try:
        back = swath.to_geotiff(data, target, **words)
    finally:
        if sink == "file":
            target.close()
    if back is not target:
        raise WrongError(f"gave back {back!r} and not what it was given")
    if path is not None:
        content = path.read_bytes()
        left = [each.name for each in folder.iterdir()]
        path.unlink()
        if left != ["out.tif"]:
            raise WrongError(f"left {left}")
        return content
    if sink == "BytesIO":
        return target.getvalue()
    if sink == "write only":
        return b"".join(target.parts)
    if sink == "fsspec":
        with need("fsspec").open(target, "rb") as file:
            return file.read()
    return bytes(need("obstore").get(*target).bytes())


# Checks -------------------------------------------------------------------------------------------------------------


class Recorder:
    """The engine's report about the last file that was written."""

    report: ClassVar[dict[str, Any]] = {}

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[None]:
        native = _write.PreparedWrite._write

        def recorded(*words: Any) -> dict[str, Any]:
            cls.report = {}
            done = native(*words)
            cls.report = done["device"]
            return done

        _write.PreparedWrite._write = recorded  # type: ignore[method-assign]
        try:
            yield
        finally:
            _write.PreparedWrite._write = native  # type: ignore[method-assign]


@dataclass
class Expected:
    """The expected properties of a file."""

    stored: np.ndarray
    nodata: float | None = None
    placed: bool = True
    scales: tuple[float, ...] = (1.0, 1.0)
    offsets: tuple[float, ...] = (0.0, 0.0)
    names: tuple[str, ...] | None = NAMES
    cog: bool = False


def same(found: np.ndarray, wanted: np.ndarray) -> str | None:
    """Describes how two arrays differ, if they do; NaN equals NaN."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {found.shape} where {wanted.dtype} {wanted.shape} belongs"
    wrong = np.argwhere((found != wanted) & ((found == found) | (wanted == wanted)))
    if not len(wrong):
        return None
    place = tuple(wrong[0].tolist())
    return (
        f"{len(wrong)} of {wanted.size} samples differ, first at {place}: {found[place]} where {wanted[place]} belongs"
    )


def check_file(content: bytes, expected: Expected) -> None:
    """Checks pixels and metadata with swath on the CPU, and with GDAL where it is installed."""
    count = len(expected.stored)
    dataset = swath.Dataset(content)
    difference = same(np.asarray(dataset.read()), expected.stored)
    if difference:
        raise WrongError(f"pixels: {difference}")
    metadata = dataset.metadata()
    bands = metadata["bands"]
    found = {
        "transform": tuple(metadata["transform"]) if metadata["transform"] else None,
        "nodata": [band["nodata"] for band in bands],
        "scale": [band["scale"] if band["scale"] is not None else 1.0 for band in bands],
        "offset": [band["offset"] if band["offset"] is not None else 0.0 for band in bands],
    }
    wanted = {
        "transform": TRANSFORM if expected.placed else None,
        "nodata": [expected.nodata] * count,
        "scale": list(expected.scales[:count]),
        "offset": list(expected.offsets[:count]),
    }
    if expected.names is not None:
        found["names"] = [band["description"] for band in bands]
        wanted["names"] = list(expected.names[:count])
    if found != wanted:
        raise WrongError(f"metadata: {found} where {wanted} belongs")
    crs = metadata["crs"]
    if bool(crs) != expected.placed or (crs and crs["epsg"] != int(CRS.partition(":")[2])):
        raise WrongError(f"crs: {crs}")
    if expected.cog:
        valid = swath.validate(content, full=True)
        if not valid["valid"]:
            raise WrongError(f"no valid COG: {valid}")
    rasterio = module("rasterio")
    if rasterio is not None:
        with warnings.catch_warnings(), rasterio.MemoryFile(content) as memory:
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with memory.open() as file:
                difference = same(file.read(), expected.stored)
                if difference:
                    raise WrongError(f"pixels, read by GDAL: {difference}")


# On the fake driver only swath gives warnings.
FAKE = "SWATH_FAKE_DRIVER" in os.environ


def of_swath(noted: list[Any]) -> list[str]:
    """Warnings that swath caused.

    NumPy warns of arithmetic, and dask silences it thread by thread with filters that all threads share: whether such a
    warning arrives is chance.
    """
    return [
        f"{each.category.__name__}: {each.message}"
        for each in noted
        if (FAKE and not issubclass(each.category, RuntimeWarning))
        or issubclass(each.category, swath.SwathWarning)
        or "swath" in each.filename
    ]


@contextmanager
def silently() -> Iterator[None]:
    """A warning within this context is a fault."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        yield
    if of_swath(noted):
        raise WrongError("warned: " + "; ".join(of_swath(noted)))


class Lab:
    """Runs cases, and keeps their results."""

    def __init__(self, folder: Path, say: Callable[[str], None] = print) -> None:
        self.folder, self.say = folder, say
        self.cases = 0
        self.failed: list[dict[str, str]] = []
        self.left_out: dict[str, int] = {}
        # The first file of each set of samples, metadata and encoder.
        self.files: dict[str, tuple[str, str]] = {}
        self._checked: set[Any] = set()

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Counts the statements within as one case."""
        (self.folder.parent / f"{self.folder.name}.current").write_text(name)
        try:
            yield
        except LeftOutError as reason:
            self.left_out[str(reason)] = self.left_out.get(str(reason), 0) + 1
            return
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            if not isinstance(error, WrongError):
                last = traceback.extract_tb(error.__traceback__)[-1]
                message += f" ({Path(last.filename).name}:{last.lineno})"
            self.failed.append({"name": name, "error": message[:600]})
            self.say(f"FAILED {name}: {message[:600]}")
        self.cases += 1

    def check(self, content: bytes, key: Any, name: str, expected: Expected, encoder: str | None) -> None:
        """Checks that a file is as expected, and the same as every other one of this key."""
        if encoder is not None:
            on_device = bool(Recorder.report["device_tiles"])
            if on_device != (encoder == "cuda"):
                raise WrongError(f"encoded by the {'GPU' if on_device else 'CPU'}")
        digest = hashlib.sha256(content).hexdigest()
        if (digest, key) not in self._checked:
            check_file(content, expected)
            self._checked.add((digest, key))
        first, other = self.files.setdefault(f"{key}, encoded by {encoder}", (digest, name))
        if first != digest:
            raise WrongError(f"not the bytes of: {other}")

    def refuses(self, name: str, kind: type[Exception], message: str, work: Callable[[], Any]) -> None:
        """Checks that a call raises this exception with these words."""
        with self.case(name):
            try:
                with silently():
                    work()
            except kind as error:
                if message not in str(error):
                    raise WrongError(f"says {error!s:.300}, without {message!r}") from error
            else:
                raise WrongError(f"no {kind.__name__}")


def write_case(
    lab: Lab,
    container: str,
    library: str,
    kind_name: str,
    device: str,
    *,
    cog: bool = False,
    sink: str = "None",
    placed: bool = True,
) -> None:
    """One write, checked."""
    title = "COG" if cog else "GeoTIFF"
    place = "" if placed else ", no coordinates"
    name = f"{container} of {library}{place}, {kind_name}, {title} to {sink}, {device}"
    with lab.case(name):
        kind = lengthened(KINDS[kind_name], band_count(container))
        data, words = contained(container, library, kind, placed=placed)
        words |= {"cog": cog, "compression": "deflate" if cog else "zstd", **DEVICES[device]}
        before = _host_copy(data)
        with silently():
            content = written(sink, lab.folder, data, words)
        expected = Expected(kind.stored, kind.nodata, placed, kind.scales, kind.offsets, cog=cog)
        key = (len(kind.stored), kind_name, placed, cog)
        lab.check(content, key, name, expected, encoder_of(DEVICES[device], on_gpu=library in ON_GPU))
        after = _host_copy(data)
        if before is not None and after is not None and same(after, before):
            raise WrongError("the input was changed")


def _host_copy(data: Any) -> np.ndarray | None:
    """A copy of an array's samples, to see whether a write changes them."""
    held = getattr(data, "data", None) if hasattr(data, "dims") else data
    if isinstance(held, np.ndarray):
        return held.copy()
    cupy = module("cupy")
    return held.get() if cupy is not None and isinstance(held, cupy.ndarray) else None


# Groups -------------------------------------------------------------------------------------------------------------

Group = Callable[[Lab], None]
GROUPS: dict[str, Group] = {}


def group(name: str) -> Callable[[Group], Group]:
    def add(function: Group) -> Group:
        GROUPS[name] = function
        return function

    return add


def containers_of(library: str) -> tuple[str, ...]:
    """Containers that can hold a library's arrays: xarray converts torch's tensors to NumPy arrays, or refuses them."""
    if library == "torch":
        return BARE
    return (*BARE, "DataArray") if library == "torch on the host" else CONTAINERS


def every_way_in(lab: Lab, library: str) -> None:
    """Every container, kind of samples and format; every `device=` where these differ most."""
    other = 'device="cpu"' if library in ON_GPU else 'device="cuda"'
    for container, kind, cog in itertools.product(containers_of(library), KINDS, (False, True)):
        wide = container in ("bare", "DataArray", "Dataset of two") and kind in ("integer", "NaN to nodata")
        for device in DEVICES if wide else ("device unset", other):
            write_case(lab, container, library, kind, device, cog=cog)
        if kind == "NaN to nodata":
            write_case(lab, container, library, kind, "device unset", cog=cog, placed=False)


def _of_library(library: str) -> Group:
    def work(lab: Lab) -> None:
        every_way_in(lab, library)

    work.__doc__ = every_way_in.__doc__
    return work


for _library in LIBRARIES:
    GROUPS[_library] = _of_library(_library)


@group("destinations")
def destinations(lab: Lab) -> None:
    """Every destination gets the same bytes."""
    for library, sink, cog in itertools.product(LIBRARIES, SINKS, (False, True)):
        other = 'device="cpu"' if library in ON_GPU else 'device="cuda"'
        for container, device in itertools.product(("bare", "DataArray", "Dataset of two"), ("device unset", other)):
            if container in containers_of(library):
                write_case(lab, container, library, "NaN to nodata", device, cog=cog, sink=sink)


@group("blocks")
def blocks(lab: Lab) -> None:
    """Where no row of chunks fits the buffer, chunks are written as blocks, in any order, and the file is right."""
    for library, container, kind_name, cog in itertools.product(
        ("dask", "dask cupy"), CONTAINERS, ("NaN to nodata", "scaled"), (False, True)
    ):
        for device in ("device unset", 'device="cpu"', 'device="cuda"', 'device="auto"'):
            name = f"{container} of {library}, {kind_name}, {'COG' if cog else 'GeoTIFF'} from blocks, {device}"
            with lab.case(name):
                kind = lengthened(KINDS[kind_name], band_count(container))
                data, words = contained(container, library, kind, placed=True)
                # More than a chunk with its bands, less than a row of chunks.
                words |= {"cog": cog, "streaming_buffer_bytes": 5000, **DEVICES[device]}
                with silently():
                    content = swath.to_geotiff(data, None, **words)
                check_file(content, Expected(kind.stored, kind.nodata, True, kind.scales, kind.offsets, cog=cog))


@group("types")
def types(lab: Lab) -> None:
    """Every type of sample, from every library."""
    names = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
    for dtype in (*names, "complex64", "complex128"):
        values = np.arange(HEIGHT * WIDTH).reshape(1, HEIGHT, WIDTH) % 101
        host = ((values + 1j * values[..., ::-1]) if dtype.startswith("complex") else values).astype(dtype)
        for library, container in itertools.product(LIBRARIES, ("bare", "DataArray")):
            if container not in containers_of(library):
                continue
            for device in ("device unset", 'device="cpu"' if library in ON_GPU else 'device="cuda"'):
                name = f"{container} of {library}, {dtype}, {device}"
                with lab.case(name):
                    data, words = contained(container, library, Kind(host, host), placed=True)
                    with silently():
                        content = swath.to_geotiff(data, None, **words, **DEVICES[device])
                    encoder = encoder_of(DEVICES[device], on_gpu=library in ON_GPU)
                    lab.check(content, dtype, name, Expected(host), encoder)


def views_of(cupy: Any, base: np.ndarray) -> Iterator[tuple[str, Any, str]]:
    """Arrays on the GPU in many memory orders, and their axes."""
    on = cupy.asarray(base)
    yield "without gaps", on, "byx"
    yield "upside down", on[:, ::-1], "byx"
    yield "mirrored", on[..., ::-1], "byx"
    yield "every second row and column", on[:, ::2, 1::2], "byx"
    yield "every second row, backwards", on[:, ::-2], "byx"
    yield "a window", on[:, 3:41, 5:67], "byx"
    yield "rows and columns swapped", on.transpose(0, 2, 1), "byx"
    yield "bands backwards", on[::-1], "byx"
    yield "bands last by strides", on.transpose(1, 2, 0), "yxb"
    yield "Fortran's order", cupy.asfortranarray(on), "byx"
    yield "one row for all", cupy.broadcast_to(on[:, :1], on.shape), "byx"
    yield "one pixel for all", cupy.broadcast_to(on[:, :1, :1], on.shape), "byx"
    yield "one band", on[1], "yx"
    yield "one band turned round", on[0, ::-1, ::-1], "yx"


@group("views")
def views(lab: Lab) -> None:
    """Views of any strides give the same file as contiguous samples."""
    cupy, xarray, arrays = module("cupy"), module("xarray"), module("dask.array")
    if cupy is None:
        lab.left_out["no cupy here"] = 1
        return
    names = {"b": "band", "y": "y", "x": "x"}
    for kind, cog in itertools.product(("NaN to nodata", "masked"), (False, True)):
        held, words = KINDS[kind].held, {**KINDS[kind].bare, "tile_size": TILE, "cog": cog}
        for title, view, axes in views_of(cupy, held):
            host = view.get()
            words["band_axis"] = axes.find("b") if "b" in axes else None
            ways: dict[str, Any] = {"bare": view}
            if xarray is not None:
                ways["DataArray"] = xarray.DataArray(view, dims=[names[axis] for axis in axes])
            if arrays is not None:
                ways["dask"] = arrays.from_array(view, chunks=chunks_of(view.shape), asarray=False)
            torch = module("torch")
            if torch is not None and all(step >= 0 for step in view.strides):
                ways["torch"] = torch.from_dlpack(view)
            for (way, data), device in itertools.product(ways.items(), ("cuda", "cpu")):
                name = f"{title}, {way}, {kind}, {'COG' if cog else 'GeoTIFF'}, device={device!r}"
                with lab.case(name):
                    with silently():
                        file = swath.to_geotiff(data, None, device=device, **words)
                        dense = swath.to_geotiff(np.ascontiguousarray(host), None, device=device, **words)
                    if file != dense:
                        raise WrongError("not the bytes of the samples without gaps")


@group("mixed")
def mixed(lab: Lab) -> None:
    """Datasets whose variables are of several libraries and types."""
    libraries = ("numpy", "cupy", "dask", "dask cupy")
    kind = KINDS["NaN to nodata"]
    for pair, device, cog in itertools.product(
        itertools.permutations(libraries, 2), ("device unset", 'device="cpu"', 'device="cuda"'), (False, True)
    ):
        name = f"Dataset of {pair[0]} and {pair[1]}, {'COG' if cog else 'GeoTIFF'}, {device}"
        with lab.case(name):
            parts = [contained("Dataset of two", library, kind, placed=True)[0] for library in pair]
            data = parts[0][["one"]].assign(two=parts[1]["two"])
            with silently():
                content = swath.to_geotiff(data, None, tile_size=TILE, cog=cog, **DEVICES[device])
            encoder = encoder_of(DEVICES[device], on_gpu=all(library in ON_GPU for library in pair))
            lab.check(content, ("mixed", cog), name, Expected(kind.stored, NODATA, cog=cog), encoder)
    # One type has to hold both: integers become floats.
    for pair, device in itertools.product(itertools.product(libraries, repeat=2), ("device unset", 'device="cuda"')):
        name = f"Dataset of {pair[0]} (int16) and {pair[1]} (float32), {device}"
        with lab.case(name):
            one, _ = contained("Dataset of two", pair[0], KINDS["integer"], placed=True)
            two, _ = contained("Dataset of two", pair[1], KINDS["float"], placed=True)
            with silently():
                content = swath.to_geotiff(one[["one"]].assign(two=two["two"]), None, tile_size=TILE, **DEVICES[device])
            stored = np.stack([KINDS["integer"].held[0].astype("float32"), KINDS["float"].held[1]])
            encoder = encoder_of(DEVICES[device], on_gpu=all(library in ON_GPU for library in pair))
            lab.check(content, "types", name, Expected(stored), encoder)


# Round trips --------------------------------------------------------------------------------------------------------

Operation = Callable[[Any], Any]


def _index(scene: Any) -> Any:
    red, near = (scene.isel(band=number).astype("float32") for number in (0, 1))
    return (near - red) / (near + red)


def _filtered(scene: Any) -> Any:
    held = scene.data.copy()
    held[..., 1:-1, 1:-1] = held[..., :-2, 1:-1]
    return scene.copy(data=held)


def _dataset(scene: Any) -> Any:
    one = scene.isel(band=0, drop=True)
    return need("xarray").Dataset({"first": one, "twice": one * 2})


# Common operations between reading and writing.
OPERATIONS: dict[str, Operation] = {
    "as it is": lambda scene: scene,
    "times two": lambda scene: scene * 2,
    "times a half plus one": lambda scene: scene * 0.5 + 1,
    "plus itself": lambda scene: scene + scene,
    "where": lambda scene: scene.where(scene > 50),
    "where, else 0": lambda scene: scene.where(scene > 50, 0),
    "clip": lambda scene: scene.clip(20, 90),
    "fillna": lambda scene: scene.fillna(0),
    "a comparison": lambda scene: scene > 50,
    "astype": lambda scene: scene.astype("float64"),
    "one band": lambda scene: scene.sel(band=2),
    "bands in another order": lambda scene: scene.isel(band=[1, 0]),
    "a window": lambda scene: scene.isel(y=slice(5, 40), x=slice(3, 60)),
    "every second pixel": lambda scene: scene.isel(y=slice(None, None, 2), x=slice(None, None, 2)),
    "upside down": lambda scene: scene.isel(y=slice(None, None, -1)),
    "bands last": lambda scene: scene.transpose("y", "x", "band"),
    "the largest of the bands": lambda scene: scene.max("band"),
    "the mean of the bands": lambda scene: scene.mean("band"),
    "a normalised difference": _index,
    "a copy with other data": lambda scene: scene.copy(data=scene.data + 1),
    "a copy": lambda scene: scene.copy(),
    "a filtered copy": _filtered,
    "a square root": lambda scene: np.sqrt(abs(scene).astype("float64")),
    "a Dataset of two": _dataset,
    "bands as variables": lambda scene: scene.to_dataset(dim="band"),
    "concat": lambda scene: need("xarray").concat([scene.isel(band=[0]), scene.isel(band=[1]) + 1], "band"),
}
# For these, dask passes NumPy's scalars to CuPy, or cannot hold a single sample.
NOT_BY_DASK = ("where, else 0", "fillna", "a filtered copy")
SCENES: dict[str, dict[str, Any]] = {
    "eager": {},
    "masked": {"masked": True},
    "scaled": {"mask_and_scale": True},
    "a window of it": {"window": (4, 6, 44, 66), "masked": True},
    "in chunks": {"chunks": {"y": 20, "x": 24}},
    "masked, in chunks": {"chunks": {"y": 20, "x": 24}, "masked": True},
}


def scene_file(lab: Lab) -> str:
    """A georeferenced file of two bands with holes, scales and names."""
    path = lab.folder.parent / "scene.tif"
    if not path.exists():
        kind = KINDS["scaled"]
        words = {**kind.bare, "crs": CRS, "transform": TRANSFORM, "tile_size": TILE, "band_descriptions": NAMES}
        swath.to_geotiff(kind.stored, str(path), device="cpu", band_axis=0, **words)
    return str(path)


@group("round trips")
def round_trips(lab: Lab) -> None:
    """Reading to the GPU, computing and writing gives the same file as on the host."""
    if module("xarray") is None or module("cupy") is None:
        lab.left_out["no xarray or no cupy here"] = 1
        return
    path = scene_file(lab)
    for number, (scene, operation) in enumerate(itertools.product(SCENES, OPERATIONS)):
        if "chunks" in SCENES[scene] and (module("dask") is None or operation in NOT_BY_DASK):
            continue
        cog = number % 2 == 1
        name = f"{scene}, {operation}, {'.swath.to_geotiff, COG' if cog else 'to_geotiff'}"
        with lab.case(name):
            round_trip(path, SCENES[scene], OPERATIONS[operation], cog=cog)


@dataclass
class Outcome:
    """A file or the error instead, and the warnings."""

    content: bytes
    error: str
    warned: list[str]

    @classmethod
    def of(cls, data: Any, *, by_accessor: bool = False, **words: Any) -> Outcome:
        """Writes `data` to bytes with the keywords `words`, and records the result."""
        content, error = b"", ""
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                content = data.swath.to_geotiff(None, **words) if by_accessor else swath.to_geotiff(data, None, **words)
            except swath.Error as refusal:
                error = f"{type(refusal).__name__}: {refusal}"
        return cls(content, error, of_swath(noted))


def round_trip(path: str, words: dict[str, Any], work: Operation, *, cog: bool) -> None:
    cupy, host = need("cupy"), work(swath.open_geotiff(path, **words))
    options: dict[str, Any] = {"tile_size": TILE, "cog": cog}
    with silently():
        scene = swath.open_geotiff(path, device="cuda", **words)
    held = getattr(scene.data, "_meta", scene.data)
    if not isinstance(held, cupy.ndarray):
        raise WrongError(f"open_geotiff gives {type(held)}")
    try:
        there = work(scene)
    except Exception as error:
        raise LeftOutError(f"xarray, dask or CuPy refuse it: {type(error).__name__}: {error}"[:200]) from error
    same_bits = work is OPERATIONS["as it is"] or _check_arithmetic(host, there)
    found = Outcome.of(there, by_accessor=cog, **options)
    if not found.error and not Recorder.report["device_tiles"]:
        raise WrongError("encoded by the CPU")
    pairs = {
        "GPU": (found, Outcome.of(host, device="cuda", **options)),
        "CPU": (Outcome.of(there, device="cpu", **options), Outcome.of(host, **options)),
    }
    for encoder, (one, other) in pairs.items():
        if (one.error, one.warned) != (other.error, other.warned):
            raise WrongError(f"{encoder}: {one.error} {one.warned} where the host has {other.error} {other.warned}")
        if one.error:
            continue
        difference = same(np.asarray(swath.read(one.content)), np.asarray(swath.read(other.content)))
        if difference:
            raise WrongError(f"encoded by the {encoder}: {difference}")
        # As text, since NaN, which may be the nodata value, is not equal to itself.
        if str(swath.Dataset(one.content).metadata()) != str(swath.Dataset(other.content).metadata()):
            raise WrongError(f"encoded by the {encoder}: other metadata than from the host")
        if same_bits and one.content != other.content:
            raise WrongError(f"encoded by the {encoder}: other bytes than from the host")


def _check_arithmetic(host: Any, there: Any) -> bool:
    """Fails where CuPy computes other samples than NumPy; returns whether it computes the same bits.

    NaN has other bits on a GPU than on a CPU.
    """
    same_bits = True
    try:
        parts = [(host[name], there[name]) for name in host.data_vars]
    except AttributeError:
        parts = [(host, there)]
    for one, other in parts:
        found = other.data.compute(scheduler="threads") if hasattr(other.data, "compute") else other.data
        if same(_host(found), one.values):
            raise LeftOutError("CuPy computes other samples than NumPy")
        same_bits &= np.ascontiguousarray(_host(found)).tobytes() == np.ascontiguousarray(one.values).tobytes()
    return same_bits


@group("reading")
def reading(lab: Lab) -> None:
    """A raster that is read to the GPU is there once, for every library, and can be written from there."""
    cupy, torch = module("cupy"), module("torch")
    wanted = KINDS["scaled"].stored
    dataset = swath.Dataset(scene_file(lab))
    words: dict[str, Any] = {"cuda": "cuda", "gpu": "gpu", "cuda:0": "cuda:0", "CUDA": "CUDA"}
    if torch is not None:
        words |= {"torch.device('cuda')": torch.device("cuda"), "torch.device('cuda', 0)": torch.device("cuda", 0)}
    if cupy is not None:
        words["cupy.cuda.Device(0)"] = cupy.cuda.Device(0)
    for word, device in words.items():
        with lab.case(f"read, device={word}"):
            _equal(np.asarray(dataset.read(device=device).to_host()), wanted)
        with lab.case(f"to_geotiff, device={word}"):
            with silently():
                content = swath.to_geotiff(wanted, None, device=device, band_axis=0)
            _equal(np.asarray(swath.read(content)), wanted)
            if not Recorder.report["device_tiles"]:
                raise WrongError("encoded by the CPU")
        if device != "CUDA":
            with lab.case(f"open_geotiff, device={word}"):
                _equal(need("cupy").asnumpy(swath.open_geotiff(dataset, device=device).data), wanted)
    takes: dict[str, Callable[[Any], Any]] = {}
    if cupy is not None:
        takes |= {"cupy.asarray": cupy.asarray, "cupy.from_dlpack": cupy.from_dlpack}
    if torch is not None:
        takes["torch.from_dlpack"] = torch.from_dlpack
    for name, take in takes.items():
        with lab.case(f"{name} of what was read"):
            array = dataset.read(device="cuda")
            taken = take(array)
            address = taken.data_ptr() if hasattr(taken, "data_ptr") else taken.data.ptr
            if address != array.__cuda_array_interface__["data"][0]:
                raise WrongError("other memory")
            _equal(_host(taken), wanted)
            with silently():
                contents = [swath.to_geotiff(each, None, band_axis=0) for each in (array, taken, taken + 0)]
            if len(set(contents)) > 1:
                raise WrongError("other bytes than from the array itself")
            _equal(np.asarray(swath.read(contents[0])), wanted)
    for name, out in _outs(cupy, torch, wanted).items():
        with lab.case(f"read into {name}"):
            if dataset.read(out=out) is not out:
                raise WrongError("gives back something else")
            _equal(_host(out), wanted)
    windows = [swath.Window(3, 5, 20, 16), swath.Window(40, 20, 20, 16)]
    host = np.asarray(dataset.read_windows(windows))
    with lab.case("read_windows"):
        _equal(np.asarray(dataset.read_windows(windows, device="cuda").to_host()), host)
    with lab.case("chips"):
        for (found, places), (other, same_places) in zip(
            dataset.chips(16, batch=4, device="cuda"), dataset.chips(16, batch=4), strict=True
        ):
            _equal(np.asarray(found.to_host()), np.asarray(other))
            if places != same_places:
                raise WrongError("other windows")


def _outs(cupy: Any, torch: Any, wanted: np.ndarray) -> dict[str, Any]:
    outs: dict[str, Any] = {"a NumPy array": np.empty_like(wanted)}
    if cupy is not None:
        outs["an array of CuPy"] = cupy.empty(wanted.shape, wanted.dtype)
        outs["a view of CuPy"] = cupy.empty((*wanted.shape[:2], 2 * WIDTH), wanted.dtype)[..., ::2]
    if torch is not None:
        outs["a tensor on the GPU"] = torch.zeros(wanted.shape, dtype=torch.int16, device="cuda")
        outs["a tensor on the host"] = torch.zeros(wanted.shape, dtype=torch.int16)
    return outs


def _host(array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    return array.cpu().numpy() if hasattr(array, "cpu") else array.get()


def _equal(found: np.ndarray, wanted: np.ndarray) -> None:
    difference = same(found, wanted)
    if difference:
        raise WrongError(difference)


# Refusals -----------------------------------------------------------------------------------------------------------


@group("refusals")
def refusals(lab: Lab) -> None:
    """A raster that cannot be written is refused before the write begins, with the same message for every library."""
    holes = KINDS["NaN to nodata"].held[0]
    cases: list[tuple[str, np.ndarray, dict[str, Any], type[Exception], str]] = [
        ("an unknown device", holes, {"device": "tpu"}, swath.UsageError, "is not cpu, cuda (or gpu) or auto"),
        ("another GPU", holes, {"device": "cuda:1"}, swath.UsageError, "CUDA_VISIBLE_DEVICES"),
        ("gpu= that is not a truth value", holes, {"gpu": "yes"}, swath.UsageError, "give True or False"),
        ("gpu= and device=", holes, {"gpu": True, "device": "cpu"}, swath.UsageError, "contradict"),
        ("on_gpu_failure", holes, {"on_gpu_failure": "maybe"}, swath.UsageError, "give 'raise', 'strict' or 'auto'"),
        ("one axis", holes[0], {}, swath.UsageError, "a raster has two axes"),
        ("four axes", holes[None, None], {}, swath.UsageError, "a raster has two axes"),
        ("no rows", holes[:0], {}, swath.UsageError, "is empty"),
        ("NaN as integers", holes, {"dtype": "int16"}, swath.UsageError, "give nodata="),
        ("large values", holes * 1000, {"dtype": "int16", "nodata": -1}, swath.UsageError, "do not fit int16"),
        ("complex as floats", holes.astype("c8"), {"dtype": "f4"}, swath.UsageError, "imaginary part"),
        ("another count", holes, {"count": 3}, swath.UsageError, "but the data have 1"),
        ("nodata out of range", np.isnan(holes).astype("u1"), {"nodata": -1}, swath.UsageError, "cannot be a sample"),
        ("an unknown word", holes, {"compresion": "lzw"}, swath.UsageError, "did you mean compression"),
        ("an unknown codec", holes, {"compression": "zip9"}, swath.UsageError, "zip9"),
        ("too little memory", holes, {"max_device_memory": 1000, "device": "cuda"}, swath.DeviceError, "1000 may be"),
    ]
    libraries = [each for each in LIBRARIES if each != "torch on the host"]
    for library, (what, host, words, kind, message) in itertools.product(libraries, cases):
        if "large values" in what or "NaN as" in what:
            host = host.astype("float64")
        if library == "torch" and host.size == 0:
            continue
        if library.startswith("dask") and (not host.size or what == "too little memory"):
            continue
        try:
            with np.errstate(all="ignore"):
                data = held_by(library, host)
        except LeftOutError as reason:
            lab.left_out[str(reason)] = lab.left_out.get(str(reason), 0) + 1
            continue
        path = lab.folder / "old.tif"
        path.write_bytes(b"old")
        lab.refuses(f"{what}, {library}", kind, message, lambda d=data, w=words, p=path: swath.to_geotiff(d, p, **w))
        with lab.case(f"{what}, {library}: the old file stays"):
            if [(each.name, each.read_bytes()) for each in lab.folder.iterdir()] != [("old.tif", b"old")]:
                raise WrongError(f"left {[each.name for each in lab.folder.iterdir()]}")
        path.unlink()
    xarray, torch = module("xarray"), module("torch")
    if xarray is not None:
        for library in ("numpy", "cupy", "dask", "dask cupy"):
            host = np.stack([KINDS["integer"].held] * 2)
            try:
                many = xarray.DataArray(held_by(library, host), dims=("time", "level", "y", "x"))
            except LeftOutError:
                continue
            name = f"times and levels, {library}"
            lab.refuses(name, swath.UsageError, "select one of", lambda data=many: swath.to_geotiff(data, None))
    if xarray is not None and torch is not None:
        # A limit of xarray: it takes no tensors on a GPU.
        tensor = held_by("torch", KINDS["integer"].held[0])
        lab.refuses("xarray of a tensor on the GPU", TypeError, "cpu()", lambda: xarray.DataArray(tensor))


# GPUs that are not there, or fail -----------------------------------------------------------------------------------


@group("without a GPU")
def without_gpu(lab: Lab) -> None:
    """Without a GPU "cuda" is an error, "auto" continues on the CPU and warns once, and all else is silent."""
    out = lab.folder / "without.json"
    environment = {"CUDA_VISIBLE_DEVICES": "", "SWATH_FAKE_DRIVER": "devices=0"}
    command = [sys.executable, str(Path(__file__).resolve()), "--only", INSIDE, "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    try:
        found = json.loads(out.read_text())[INSIDE]
    except (OSError, ValueError, KeyError):
        raise WrongError(f"a process ended with {done.returncode}: {done.stderr[-400:]}") from None
    lab.cases += found["cases"]
    for each in found["failed"]:
        lab.failed.append(each)
        lab.say(f"FAILED without a GPU: {each['name']}: {each['error']}")


INSIDE = "inside: no GPU"


@group(INSIDE)
def no_gpu(lab: Lab) -> None:
    kind = "NaN to nodata"
    for library, container, cog in itertools.product(("numpy", "torch on the host", "dask"), CONTAINERS, (False, True)):
        if container not in containers_of(library):
            continue
        for device in ("device unset", 'device="cpu"', "gpu=False", 'on_gpu_failure="auto"'):
            write_case(lab, container, library, kind, device, cog=cog)
        for device in ('device="cuda"', "gpu=True"):
            data, words = contained(container, library, lengthened(KINDS[kind], band_count(container)), placed=True)
            path = lab.folder / "old.tif"
            path.write_bytes(b"old")
            lab.refuses(
                f"{container} of {library}, {device}, without a GPU",
                swath.DeviceError,
                "no CUDA",
                lambda d=data, p=path, w={**words, **DEVICES[device]}: swath.to_geotiff(d, p, **w),
            )
            with lab.case(f"{container} of {library}, {device}: the old file stays"):
                if [(each.name, each.read_bytes()) for each in lab.folder.iterdir()] != [("old.tif", b"old")]:
                    raise WrongError(f"left {[each.name for each in lab.folder.iterdir()]}")
            path.unlink()
        for device in ('device="auto"', 'device="cuda", on_gpu_failure="auto"'):
            name = f"{container} of {library}, {device}, {'COG' if cog else 'GeoTIFF'}, without a GPU"
            with lab.case(name):
                cut = lengthened(KINDS[kind], band_count(container))
                data, words = contained(container, library, cut, placed=True)
                compression = "deflate" if cog else "zstd"
                done = Outcome.of(data, cog=cog, compression=compression, **words, **DEVICES[device])
                if len(done.warned) != 1 or "the CPU writes" not in done.warned[0]:
                    raise WrongError(f"warned: {done.warned}, {done.error}")
                expected = Expected(cut.stored, cut.nodata, cog=cog)
                lab.check(done.content, (len(cut.stored), kind, True, cog), name, expected, "cpu")
    path = scene_file(lab)
    for word in ("cuda", "gpu"):
        lab.refuses(f"read, device={word}", swath.DeviceError, "no CUDA", lambda w=word: swath.read(path, device=w))
    with lab.case('read, device="auto"'):
        _equal(np.asarray(swath.read(path, device="auto")), KINDS["scaled"].stored)
    if module("xarray") is None:
        return
    lab.refuses(
        'open_geotiff, device="cuda"', swath.DeviceError, "GPU", lambda: swath.open_geotiff(path, device="cuda")
    )
    with lab.case('open_geotiff, device="auto"'):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            _equal(swath.open_geotiff(path, device="auto").values, KINDS["scaled"].stored)
        if len(of_swath(noted)) != 1 or "by the CPU" not in of_swath(noted)[0]:
            raise WrongError(f"warned: {of_swath(noted)}")
    with lab.case('open_geotiff, on_gpu_failure="auto"'):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            for _ in range(2):
                data = swath.open_geotiff(path, device="cuda", on_gpu_failure="auto")
        _equal(data.values, KINDS["scaled"].stored)
        if [each.category for each in noted] != [swath.DeviceWarning] * 2:
            raise WrongError(f"warned: {[str(each.message) for each in noted]}")


# Faults of the fake driver, and whether the CPU can continue; None: it can where the GPU took no rows yet.
FAULTS: dict[str, bool | None] = {
    "fail_copy=1": True,
    "fail_launch=1": False,
    "fail_launch=3": False,
    "fault_launch=2": False,
    "fail_sync=1": None,
    "lose_after=40": False,
}


@group("a GPU that fails")
def failing_gpu(lab: Lab) -> None:
    """A GPU that fails raises and leaves the old file; with "auto" the CPU finishes the file if it can, and warns."""
    if not FAKE:
        lab.left_out["only the fake driver fails on request"] = 1
        return
    script = ctypes.CDLL(os.environ["SWATH_CUDA_DRIVER"]).swath_fake_script
    held = (np.arange(200 * 300).reshape(200, 300) % 97).astype("float32")
    for (fault, goes_on), library, container in itertools.product(
        FAULTS.items(), ("numpy", "cupy", "cupy view"), ("bare", "DataArray", "Dataset of one")
    ):
        for failure in ("raise", "auto"):
            name = f"{container} of {library}, {fault}, on_gpu_failure={failure!r}"
            path = lab.folder / "old.tif"
            path.write_bytes(b"old")
            with lab.case(name):
                script(None)
                data, words = contained(container, library, Kind(held[None], held[None]), placed=False)
                if module("cupy") is not None:
                    need("cupy").cuda.Device().synchronize()
                with warnings.catch_warnings(record=True) as noted:
                    warnings.simplefilter("always")
                    script(f"async=1 seed=5 {fault}".encode())
                    try:
                        swath.to_geotiff(data, path, device="cuda", on_gpu_failure=failure, **words)
                        error = None
                    except swath.DeviceError as refusal:
                        error = refusal
                    finally:
                        script(None)
                warned = [str(each.message) for each in noted]
                continued = goes_on or (goes_on is None and error is None)
                if continued and failure == "auto":
                    if error is not None or len(warned) != 1 or "the CPU writes" not in warned[0]:
                        raise WrongError(f"{error} {warned}")
                    _equal(np.asarray(swath.read(path)), held[None])
                elif error is None or warned or path.read_bytes() != b"old":
                    raise WrongError(f"{error} {warned}, {path.stat().st_size} bytes")
                left = [each.name for each in lab.folder.iterdir()]
                if left != ["old.tif"]:
                    raise WrongError(f"left {left}")
            path.unlink()


# Main ---------------------------------------------------------------------------------------------------------------


def run_group(name: str, folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs a group; returns its number of cases, those that failed, and those that were left out and why."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(folder, say)
    try:
        with Recorder.listening():
            GROUPS[name](lab)
    except Exception as error:
        traceback.print_exc()
        lab.failed.append({"name": f"{name}: the group itself", "error": f"{type(error).__name__}: {error}"[:600]})
    seconds = round(time.perf_counter() - started, 2)
    return {
        "cases": lab.cases,
        "failed": lab.failed,
        "left_out": lab.left_out,
        "seconds": seconds,
        "files": lab.files,
    }


def differences(results: dict[str, dict[str, Any]]) -> list[str]:
    """Files of the same samples, metadata and encoder that differ from group to group."""
    seen: dict[str, tuple[str, str]] = {}
    found = []
    for done in results.values():
        for key, (digest, name) in done["files"].items():
            first, other = seen.setdefault(key, (digest, name))
            if first != digest:
                found.append(f"{name}: not the bytes of: {other}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--dir", type=Path)
    args = parser.parse_args()
    # A crash in native code then prints where Python was.
    faulthandler.enable()
    names = args.only.split(",") if args.only else [name for name in GROUPS if name != INSIDE]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="swath-matrix-", dir=args.dir) as folder:
        for number, name in enumerate(names):
            results[name] = done = run_group(name, Path(folder, str(number)))
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{name}: {done['cases']} cases, {len(done['failed'])} failed, {done['seconds']} s", flush=True)
    differing = differences(results)
    for each in differing:
        print(f"FAILED {each}")
    return 1 if differing or any(done["failed"] for done in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
