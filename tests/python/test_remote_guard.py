"""`public_only` and `allowed_hosts`: nothing is opened that the engine's own client does not guard."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import swath
import swath.xrspatial
import xarray as xr
from remote import Files, direct

PIXELS = np.arange(64 * 64, dtype="u2").reshape(64, 64)
GUARDS: dict[str, dict[str, Any]] = {
    "public_only": {"public_only": True},
    "allowed_hosts": {"allowed_hosts": ["tiles.example"]},
    "both": {"public_only": True, "allowed_hosts": ["tiles.example"]},
}
READERS: dict[str, Callable[..., Any]] = {
    "Dataset": swath.Dataset,
    "read": swath.read,
    "info": swath.info,
    "stats": swath.stats,
    "validate": swath.validate,
    "open_geotiff": swath.open_geotiff,
    "open_geotiff, lazy": lambda source, **words: swath.open_geotiff(source, chunks=32, **words),
    "xarray": lambda source, **words: xr.open_dataset(source, engine="swath", **words),
    "xrspatial": swath.xrspatial.open_geotiff,
}


@pytest.fixture
def server() -> Iterator[Files]:
    with direct(), Files({"/file.tif": swath.to_geotiff(PIXELS, None)}) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(swath.to_geotiff(PIXELS, tmp_path / "file.tif"))


def bypasses(server: Files, path: Path) -> list[Any]:
    """Names that lead past the engine's client."""
    fsspec.filesystem("memory").pipe("/guard/file.tif", path.read_bytes())
    return [
        f"simplecache::{server.url}/file.tif",
        f"filecache::{server.url}/file.tif",
        f"blockcache::{server.url}/file.tif",
        f"SIMPLECACHE::{server.url}/file.tif",
        f"zip://file.tif::{server.url}/file.zip",
        f"simplecache::local://{path}",
        f"ftp://127.0.0.1:{server.port}/file.tif",
        f"webdav://127.0.0.1:{server.port}/file.tif",
        "memory://guard/file.tif",
        f"local://{path}",
        f"file://{path}",
        f"file:{path}",
        f"FILE://{path}",
        f"/vsicurl/file://{path}",
        f"/vsicurl?url=file://{path}",
        f"GTIFF_DIR:1:{path}",
        str(path),
        path,
    ]


@pytest.mark.parametrize("guard", GUARDS)
def test_nothing_is_opened_past_the_guard(server: Files, path: Path, guard: str) -> None:
    for source in bypasses(server, path):
        with pytest.raises(swath.DeniedError, match="addresses that swath asks itself") as raised:
            swath.read(source, storage_options=GUARDS[guard])
        assert isinstance(raised.value, PermissionError)
        assert "https://" in str(raised.value) and "leave" in str(raised.value)
    assert server.connections == 0


@pytest.mark.parametrize("name", READERS)
def test_every_way_in_is_guarded(server: Files, path: Path, name: str) -> None:
    for source in (f"simplecache::{server.url}/file.tif", f"file://{path}", str(path)):
        with pytest.raises((swath.DeniedError, swath.xrspatial.UnsafeURLError), match="public_only"):
            READERS[name](source, storage_options={"public_only": True})
    assert server.connections == 0


def test_writers_are_guarded(server: Files, tmp_path: Path) -> None:
    targets = (
        "memory://guard/written.tif",
        f"ftp://127.0.0.1:{server.port}/written.tif",
        f"local://{tmp_path}/written.tif",
        f"file://{tmp_path}/written.tif",
        tmp_path / "written.tif",
    )
    for target in targets:
        for guard in GUARDS.values():
            with pytest.raises(swath.WriteDeniedError, match="addresses that swath asks itself") as raised:
                swath.to_geotiff(PIXELS, target, storage_options=guard)
            assert isinstance(raised.value, PermissionError)
    with pytest.raises(swath.WriteDeniedError, match="not a public address"):
        swath.to_geotiff(
            PIXELS,
            "s3://bucket/written.tif",
            storage_options={"public_only": True, "endpoint": server.url, "anonymous": True},
        )
    assert not (tmp_path / "written.tif").exists()
    assert not fsspec.filesystem("memory").exists("/guard/written.tif")
    assert server.connections == 0


def test_a_secret_in_a_refused_address_is_not_shown() -> None:
    for source in ("ftp://me:hush-hush@host.invalid/a.tif?key=hush-hush", "simplecache::ftp://me:hush-hush@host/a.tif"):
        with pytest.raises(swath.DeniedError) as raised:
            swath.read(source, storage_options={"public_only": True})
        assert "hush-hush" not in str(raised.value) + repr(raised.value)


def test_guards_that_are_off_stop_nothing(server: Files, path: Path) -> None:
    """fsspec does not know the words, so it does not get them either."""
    for guard in ({"public_only": False}, {"allowed_hosts": []}, {"public_only": None}, {}):
        fsspec.filesystem("memory").pipe("/guard/file.tif", path.read_bytes())
        for source in (path, f"file://{path}", "simplecache::memory://guard/file.tif", f"{server.url}/file.tif"):
            np.testing.assert_array_equal(np.asarray(swath.read(source, 1, storage_options=guard)), PIXELS)
        swath.to_geotiff(PIXELS, "memory://guard/off.tif", storage_options=guard)


def test_a_guard_of_the_wrong_kind_is_no_guard_that_is_off(path: Path) -> None:
    for wrong in ({"public_only": "yes"}, {"allowed_hosts": [5]}, [5]):
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.read(path, storage_options=wrong)
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.to_geotiff(PIXELS, path, storage_options=wrong)


def test_what_the_caller_opened_is_the_callers_choice(path: Path) -> None:
    """Such a source takes no options at all, so that no one believes it guarded."""
    fsspec.filesystem("memory").pipe("/guard/file.tif", path.read_bytes())
    for source in (io.BytesIO(path.read_bytes()), fsspec.open("memory://guard/file.tif"), swath.Dataset(path)):
        np.testing.assert_array_equal(np.asarray(swath.read(source, 1)), PIXELS)
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.read(source, storage_options={"public_only": True})


def test_xarray_spatial_guards_web_servers_unless_told_otherwise(
    server: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS", raising=False)
    url = f"{server.url}/file.tif"
    for source in (url, url.replace("http", "HTTP"), f"simplecache::{url}", f"/vsicurl/{url}", f"GTIFF_DIR:1:{url}"):
        with pytest.raises(swath.xrspatial.UnsafeURLError, match="XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS"):
            swath.xrspatial.open_geotiff(source)
    assert server.connections == 0
    monkeypatch.setenv("XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS", "1")
    np.testing.assert_array_equal(swath.xrspatial.open_geotiff(url).values, PIXELS)
