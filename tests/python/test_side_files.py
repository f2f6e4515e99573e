"""Side files (`.ovr`, `.msk`, `.aux.xml`) are removed when the file that they describe is replaced, and not before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array
import fsspec
import numpy as np
import pytest
import rasterio
import swath
import xarray as xr
from harness import Swath, scratch
from obstore.store import LocalStore
from rasterio.enums import Resampling
from rasterio.transform import from_origin

OLD, NEW = 10, 77
SIDES = ["a.tif.aux.xml", "a.tif.msk", "a.tif.msk.ovr", "a.tif.ovr", "a.tif.ovr.aux.xml", "a.tif.vat.dbf"]
PAM = "<PAMDataset><Metadata><MDI key='of'>old</MDI></Metadata></PAMDataset>"

# Kills the process right after it renamed a file to a given name, or right before it removes one; or fails the removal.
TRAP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int meant(const char *path, const char *variable) {
  const char *end = getenv(variable);
  size_t a = strlen(path), b = end ? strlen(end) : 0;
  return b && a >= b && strcmp(path + a - b, end) == 0;
}
int rename(const char *from, const char *to) {
  int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
  int result = next(from, to);
  if (result == 0 && meant(to, "KILL_AFTER_RENAME")) kill(getpid(), SIGKILL);
  return result;
}
int unlink(const char *path) {
  int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
  if (meant(path, "KILL_BEFORE_UNLINK")) kill(getpid(), SIGKILL);
  if (meant(path, "FAIL_UNLINK")) { errno = EPERM; return -1; }
  return next(path);
}
"""


@pytest.fixture(scope="module")
def trap() -> Iterator[Path]:
    """A library that intercepts the calls of the process that matter."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    with scratch() as name:
        source, library = Path(name) / "trap.c", Path(name) / "trap.so"
        source.write_text(TRAP)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        yield library


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("source"))


def old(path: Path, placed: bool = True) -> None:
    """A file with overview, mask and metadata in side files: every pixel is valid, and marks the old file."""
    place = {"transform": from_origin(100, 200, 2, 2), "crs": "EPSG:32633"} if placed else {}
    samples = np.full((1, 128, 128), OLD, "uint8")
    with rasterio.open(path, "w", driver="GTiff", width=128, height=128, count=1, dtype="uint8", **place) as file:
        file.write(samples)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(path, "r+") as file:
        file.write_mask(np.zeros((128, 128), bool))
    with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(path, "r+") as file:
        file.build_overviews([2], Resampling.nearest)
    path.with_name(path.name + ".aux.xml").write_text(PAM)
    path.with_name(path.name + ".ovr.aux.xml").write_text("<PAMDataset/>")
    path.with_name(path.name + ".vat.dbf").write_text("")
    assert [name for name in names(path.parent) if name.startswith(f"{path.name}.")] == [
        name.replace("a.tif", path.name) for name in SIDES
    ]


def fresh() -> xr.DataArray:
    return xr.DataArray(np.full((100, 100), NEW, "uint16"), dims=("y", "x"))


def tag_of(path: Path) -> str | None:
    return swath.open_geotiff(path).attrs.get("of")


def seen(path: Path) -> str:
    """Which file swath reads, with its side files; a mixture counts as neither."""
    dataset = swath.Dataset(path)
    pixels = set(np.unique(np.asarray(dataset.read(1))))
    shown = set(np.unique(np.asarray(dataset.read_mask())))
    levels = [set(np.unique(np.asarray(dataset.read(1, overview_level=0))))] if dataset.overview_sizes else []
    tags = tag_of(path)
    if (pixels, shown, levels, tags) == ({OLD}, {0}, [{OLD}], "old"):
        return "old"
    if (pixels, shown, levels, tags) == ({NEW}, {255}, [], None):
        return "new"
    return f"{pixels}, mask {shown}, overviews {levels}, tags {tags}"


@pytest.fixture
def source(folder: Path) -> Path:
    path = folder / "source.tif"
    swath.to_geotiff(fresh(), path)
    return path


def by_command(swath_: Swath, source: Path, path: Path) -> None:
    run = swath_.run("convert", source, path)
    assert run.ok, run.stderr


def by_blocks(_: Swath, __: Path, path: Path) -> None:
    chunks = dask.array.full((100, 100), NEW, "uint16", chunks=(50, 50))
    swath.to_geotiff(xr.DataArray(chunks, dims=("y", "x")), path)


def into_file(_: Swath, __: Path, path: Path) -> None:
    with path.open("wb") as file:
        swath.to_geotiff(fresh(), file)


def into_fsspec(_: Swath, __: Path, path: Path) -> None:
    with fsspec.open(str(path), "wb") as file:
        swath.to_geotiff(fresh(), file)


WAYS: dict[str, Callable[[Swath, Path, Path], Any]] = {
    "convert": by_command,
    "array": lambda _, __, path: swath.to_geotiff(fresh(), path),
    "dask": by_blocks,
    "file-object": into_file,
    "fsspec-file": into_fsspec,
    "fsspec-open-file": lambda _, __, path: swath.to_geotiff(fresh(), fsspec.open(str(path), "wb")),
    "obstore": lambda _, __, path: swath.to_geotiff(fresh(), (LocalStore(path.parent), path.name)),
    "obstore-root": lambda _, __, path: swath.to_geotiff(fresh(), (LocalStore(), str(path))),
    "file-url": lambda _, __, path: swath.to_geotiff(fresh(), f"file://{path}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_side_files_go_with_what_they_describe(swath: Swath, folder: Path, source: Path, way: str) -> None:
    path = folder / "a.tif"
    old(path)
    assert seen(path) == "old"
    others = ["a.aux.xml", "a.prj", "a.tif.txt", "b.tif.ovr", "a.tiff.msk"]
    for name in others:
        (folder / name).write_text("another's")
    WAYS[way](swath, source, path)
    assert names(folder) == sorted(["a.tif", *others])
    assert seen(path) == "new"
    with rasterio.open(path) as file:
        assert file.overviews(1) == [] and file.tags().get("of") is None and file.dataset_mask().min() == 255


def test_side_files_stay_where_a_file_object_is_not_the_file(folder: Path) -> None:
    """One whose name now belongs to another file, and one in which the raster is not at the start."""
    path = folder / "a.tif"
    old(path)
    with path.open("rb+") as file:
        path.rename(folder / "source-moved.tif")
        (folder / "a.tif").write_bytes(b"another's")
        swath.to_geotiff(fresh(), file)
    assert names(folder) == sorted(["a.tif", *SIDES])
    with path.open("ab") as file:
        swath.to_geotiff(fresh(), file)
    assert names(folder) == sorted(["a.tif", *SIDES])


def test_obstore_makes_folders(folder: Path) -> None:
    swath.to_geotiff(fresh(), (LocalStore(folder), "one/two/a.tif"))
    assert seen(folder / "one" / "two" / "a.tif") == "new"


def test_colours_go_with_the_raster_that_had_them(folder: Path) -> None:
    path, style = folder / "a.tif", folder / "a.qml"
    swath.to_geotiff(fresh(), path, color_ramp="viridis", color_ramp_range=(0, 1))
    assert style.exists()
    swath.to_geotiff(fresh(), path)
    assert not style.exists()
    # Styles that QGIS or other programs wrote stay.
    style.write_text("<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n<qgis version='3.34.1-Prizren'/>")
    swath.to_geotiff(fresh(), path)
    assert style.exists()


def test_side_files_stay_when_the_write_fails(swath: Swath, folder: Path, source: Path) -> None:
    path = folder / "a.tif"
    old(path)
    swath.run("convert", source, path, "--max-memory", "1k").check_refusal()
    assert names(folder) == sorted(["a.tif", *SIDES]) and seen(path) == "old"


def test_side_files_of_a_file_that_is_gone(swath: Swath, folder: Path, source: Path) -> None:
    """GDAL keeps them and uses them for the new file, although they describe pixels that no longer exist."""
    path = folder / "a.tif"
    old(path)
    path.unlink()
    by_command(swath, source, path)
    assert names(folder) == ["a.tif"] and seen(path) == "new"


def test_side_files_of_links(swath: Swath, folder: Path, source: Path) -> None:
    (folder / "real").mkdir()
    real, link = folder / "real" / "r.tif", folder / "a.tif"
    old(real)
    link.symlink_to(Path("real") / "r.tif")
    for name in SIDES:
        shutil.copyfile(real.parent / name.replace("a.tif", "r.tif"), folder / name)
    assert seen(link) == seen(real) == "old"
    by_command(swath, source, link)
    assert names(folder) == ["a.tif", "real"] and names(real.parent) == ["r.tif"]
    assert link.is_symlink() and seen(link) == seen(real) == "new"


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("other", [None, "a.tiff"])
def test_world_files(swath: Swath, folder: Path, source: Path, placed: bool, other: str | None) -> None:
    """As with GDAL, a world file that placed the old file is removed; one that the old file did not use, or another
    file uses, stays."""
    path, world = folder / "a.tif", folder / "a.tfw"
    old(path, placed)
    world.write_text("2\n0\n0\n-2\n101\n199\n")
    with rasterio.open(path) as file:
        assert file.transform == from_origin(100, 200, 2, 2) and ("a.tfw" in str(file.files)) is not placed
    if other:
        shutil.copyfile(path, folder / other)
    by_command(swath, source, path)
    assert world.exists() is (placed or other is not None)


@pytest.mark.parametrize("side", ["a.tif.ovr", "a.tif.msk"])
def test_side_file_is_not_converted_into_the_file_it_describes(swath: Swath, folder: Path, side: str) -> None:
    path = folder / "a.tif"
    old(path)
    before = names(folder)
    done = swath.run("convert", folder / side, path)
    assert done.code == 2 and "give the result another name" in done.stderr, done.stderr
    assert names(folder) == before and seen(path) == "old"


CUTS = {
    "noted": {"KILL_AFTER_RENAME": "-beside"},
    "renamed": {"KILL_AFTER_RENAME": "/a.tif"},
    "overview": {"KILL_BEFORE_UNLINK": "a.tif.ovr"},
    "mask": {"KILL_BEFORE_UNLINK": "a.tif.msk"},
    "metadata": {"KILL_BEFORE_UNLINK": "a.tif.aux.xml"},
    "all gone": {"KILL_BEFORE_UNLINK": "-beside"},
}


@pytest.mark.parametrize("cut", CUTS)
def test_killed_between_rename_and_removal(swath: Swath, folder: Path, source: Path, trap: Path, cut: str) -> None:
    """At no point is the old file seen without its side files, or the new one with them."""
    path = folder / "a.tif"
    old(path)
    environment = {**os.environ, "LD_PRELOAD": str(trap), **CUTS[cut]}
    argv = [str(swath.binary), "convert", str(source), str(path), "-q"]
    killed = subprocess.run(argv, env=environment, capture_output=True, timeout=30, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert seen(path) == ("old" if cut == "noted" else "new")
    assert any(name.startswith(".swath") for name in names(folder))
    # Side files made for the new file are used, whatever was there before.
    if cut != "noted":
        (folder / "a.tif.aux.xml").write_text(PAM.replace("old", "made since"))
        assert tag_of(path) == "made since"
    by_command(swath, source, path)
    assert names(folder) == ["a.tif"] and seen(path) == "new"


def test_side_file_that_cannot_be_removed(swath: Swath, folder: Path, source: Path, trap: Path) -> None:
    path = folder / "a.tif"
    old(path)
    environment = {**os.environ, "LD_PRELOAD": str(trap), "FAIL_UNLINK": "a.tif.msk"}
    argv = [str(swath.binary), "convert", str(source), str(path), "-q"]
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 2 and "a.tif.msk" in run.stderr and "cannot be removed" in run.stderr, run.stderr
    assert seen(path) == "new"


@pytest.mark.parametrize("side", ["ovr", "msk", "aux.xml"])
@pytest.mark.parametrize("content", [b"", b"rubbish", b"II*\0\xff\xff\xff\xff", b"<PAMDataset><"])
def test_a_damaged_side_file_causes_a_warning(
    request: pytest.FixtureRequest, folder: Path, side: str, content: bytes
) -> None:
    tool: Swath = request.getfixturevalue("swath")
    path = folder / "a.tif"
    swath.to_geotiff(np.full((8, 8), NEW, "uint8"), path)
    (folder / f"a.tif.{side}").write_bytes(content)
    for open_one in (swath.Dataset, swath.open_geotiff, swath.read, swath.read, swath.info):
        with pytest.warns(swath.SwathWarning, match=rf"a\.tif: .*{side}.*") as caught:
            open_one(path)
        assert len(caught) == 1 and caught[0].filename == __file__
    run = tool.run("dump", path, "--out", folder / "a.npy")
    assert run.ok and f"warning: {path}: " in run.stderr and side in run.stderr
    # One that is no longer there when the file is opened causes none.
    (folder / f"a.tif.{side}").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert swath.Dataset(path).read().max() == NEW


def test_whole_side_files_cause_no_warning(folder: Path) -> None:
    path = folder / "a.tif"
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False),
        rasterio.open(path, "w", driver="GTiff", width=64, height=64, count=1, dtype="uint8") as file,
    ):
        file.write(np.full((1, 64, 64), NEW, "uint8"))
        file.write_mask(np.ones((64, 64), bool))
    with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(path, "r+") as file:
        file.build_overviews([2])
    (folder / "a.tif.aux.xml").write_text(PAM)
    assert {"a.tif.msk", "a.tif.ovr"} <= {side.name for side in folder.iterdir()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swath.open_geotiff(path, masked=True, overview_level=0)
