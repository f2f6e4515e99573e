"""`public_only` and `allowed_hosts`: only sources that the engine's own client guards are opened."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import swath
import swath.xrspatial
import xarray as xr
from harness import Swath
from remote import Files, direct
from remote_faults import always, redirect

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
    """Names that would bypass the engine's client."""
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
        with pytest.raises(swath.DeniedError, match="addresses of swath's own client") as raised:
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


def test_naming_hosts_refuses_all_other_private_ones(server: Files, request: pytest.FixtureRequest) -> None:
    """Also without `public_only`: allowing one private host does not allow others."""
    tool: Swath = request.getfixturevalue("swath")
    url, own = f"{server.url}/file.tif", f"127.0.0.1:{server.port}"
    for hosts in (["tiles.example"], ["127.0.0.1:1"], ["10.0.0.1", "localhost"]):
        with pytest.raises(swath.DeniedError, match="not a public address"):
            swath.read(url, storage_options={"allowed_hosts": hosts})
        options = {"allowed_hosts": hosts, "endpoint": server.url, "anonymous": True}
        with pytest.raises(swath.WriteDeniedError, match="not a public address"):
            swath.to_geotiff(PIXELS, "s3://bucket/written.tif", storage_options=options)
        run = tool.run("info", url, *(word for host in hosts for word in ("--allow-host", host)))
        assert run.code == 2 and "not a public address" in run.stderr, run.stderr
    assert server.connections == 0
    for hosts in (["127.0.0.1"], [own], ["tiles.example", own]):
        np.testing.assert_array_equal(np.asarray(swath.read(url, 1, storage_options={"allowed_hosts": hosts})), PIXELS)
    # An allowed host may not redirect to one that is not allowed.
    with direct(), Files({}) as front:
        front.script = lambda _: redirect(url)
        server.forget()
        with pytest.raises(swath.DeniedError, match="not a public address"):
            swath.read(f"{front.url}/file.tif", storage_options={"allowed_hosts": [f"127.0.0.1:{front.port}"]})
    assert not server.requests


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
            with pytest.raises(swath.WriteDeniedError, match="addresses of swath's own client") as raised:
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
    """fsspec does not know these options, so it does not get them."""
    for guard in ({"public_only": False}, {"allowed_hosts": []}, {"public_only": None}, {}):
        fsspec.filesystem("memory").pipe("/guard/file.tif", path.read_bytes())
        for source in (path, f"file://{path}", "simplecache::memory://guard/file.tif", f"{server.url}/file.tif"):
            np.testing.assert_array_equal(np.asarray(swath.read(source, 1, storage_options=guard)), PIXELS)
        swath.to_geotiff(PIXELS, "memory://guard/off.tif", storage_options=guard)


def test_a_guard_of_the_wrong_type_is_an_error(path: Path) -> None:
    for wrong in ({"public_only": "yes"}, {"allowed_hosts": [5]}, [5]):
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.read(path, storage_options=wrong)
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.to_geotiff(PIXELS, path, storage_options=wrong)


def test_what_the_caller_opened_is_the_callers_choice(path: Path) -> None:
    """Such a source takes no options at all, so that it does not seem guarded."""
    fsspec.filesystem("memory").pipe("/guard/file.tif", path.read_bytes())
    for source in (io.BytesIO(path.read_bytes()), fsspec.open("memory://guard/file.tif"), swath.Dataset(path)):
        np.testing.assert_array_equal(np.asarray(swath.read(source, 1)), PIXELS)
        with pytest.raises(swath.UsageError, match="storage_options"):
            swath.read(source, storage_options={"public_only": True})


def test_xarray_spatial_guards_web_servers_by_default(server: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS", raising=False)
    url = f"{server.url}/file.tif"
    for source in (url, url.replace("http", "HTTP"), f"simplecache::{url}", f"/vsicurl/{url}", f"GTIFF_DIR:1:{url}"):
        with pytest.raises(swath.xrspatial.UnsafeURLError, match="XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS"):
            swath.xrspatial.open_geotiff(source)
    assert server.connections == 0
    monkeypatch.setenv("XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS", "1")
    np.testing.assert_array_equal(swath.xrspatial.open_geotiff(url).values, PIXELS)


# ----------------------------------------------------------------------------------------------------------- link-local

# Addresses of clouds' metadata services, in every spelling.
LINK = [
    "169.254.169.254",
    "2852039166",
    "0xA9FEA9FE",
    "0251.0376.0251.0376",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[::a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "169.254.170.2",
]


@pytest.mark.parametrize("options", [{}, {"allowed_hosts": ["127.0.0.1", "169.254.169.254"]}], ids=["plain", "allowed"])
def test_no_redirect_leads_to_the_metadata_services(server: Files, options: dict[str, Any]) -> None:
    for host in LINK:
        for hops in (1, 3):
            server.forget()
            far = redirect(f"HTTP://{host}/latest/meta-data/")
            server.script = lambda request, far=far, hops=hops: far if request.number == hops else redirect("/again")
            started = time.monotonic()
            with pytest.raises(swath.DeniedError, match="link-local address") as raised:
                swath.Dataset(f"{server.url}/file.tif", storage_options=options)
            assert time.monotonic() - started < 5, "nothing is sent there"
            assert "redirects" in str(raised.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_endpoints_are_guarded(server: Files, swath: Swath, scheme: str) -> None:
    """Also one whose bucket is named like a folder of the metadata services; no request for credentials is sent."""
    settings = ("--remote-option", "azure_storage_account_name=account") if scheme == "az" else ()
    hosts = [server.url, *(f"http://{host}" for host in LINK)]
    for endpoint in hosts:
        for bucket in ("latest", "computeMetadata", "rasters"):
            if scheme == "az" and bucket == "computeMetadata":
                continue
            address = f"{scheme}://{bucket}/meta-data/iam/a.tif"
            command = ("info", address, "--public-only", "--endpoint", endpoint, *settings)
            for flag in ((), ("--anonymous",)):
                run = swath.run(*command, *flag, timeout=10)
                assert run.code == 2 and "not a public address" in run.stderr, (endpoint, run.stderr)
                assert run.seconds < 2
    assert server.connections == 0


# Resolves one name to two addresses in turn, and logs every address that is contacted. No request leaves this machine.
REBINDING = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static void note(const char *word, const char *text) {
  int file = open(getenv("REBIND_NOTES"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dprintf(file, "%s %s\n", word, text);
  close(file);
}
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  next = dlsym(RTLD_NEXT, "getaddrinfo");
  static int calls;
  if (name && strcmp(name, "rebind.example") == 0) {
    name = getenv(calls++ % 2 == 0 ? "REBIND_FIRST" : "REBIND_THEN");
    note("name", name);
  }
  return next(name, service, hints, found);
}
int connect(int socket, const struct sockaddr *address, socklen_t length) {
  int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
  const struct sockaddr_in *internet = (const struct sockaddr_in *)address;
  if (address->sa_family != AF_INET) return next(socket, address, length);
  char text[64];
  inet_ntop(AF_INET, &internet->sin_addr, text, sizeof text);
  note("connect", text);
  if (strcmp(text, "127.0.0.1") == 0) return next(socket, address, length);
  errno = ETIMEDOUT;
  return -1;
}
"""


@pytest.fixture(scope="module")
def rebinding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler, as the build does"
    folder = tmp_path_factory.mktemp("rebinding")
    (folder / "names.c").write_text(REBINDING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "names.so", folder / "names.c", "-ldl"], check=True)
    return folder / "names.so"


def noted(
    library: Path, folder: Path, swath: Swath, first: str, then: str, *arguments: str
) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    notes = folder / "notes"
    notes.write_text("")
    settings = {
        "LD_PRELOAD": str(library),
        "REBIND_NOTES": str(notes),
        "REBIND_FIRST": first,
        "REBIND_THEN": then,
        "NO_PROXY": "*",
    }
    command = [str(swath.binary), "info", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=30
    )
    return notes.read_text().splitlines(), done


def test_a_name_that_resolves_anew_leads_to_no_private_address(
    server: Files, rebinding: Path, tmp_path: Path, swath: Swath
) -> None:
    """A public address for the check, and this machine's for the connection."""
    url = f"http://rebind.example:{server.port}/file.tif"
    seen, done = noted(rebinding, tmp_path, swath, "198.41.0.4", "127.0.0.1", url, "--public-only", "--retries", "3")
    assert done.returncode == 2 and "not a public address" in done.stderr, done.stderr
    assert "connect 198.41.0.4" in seen, "the public address was asked, so the name passed once"
    assert "connect 127.0.0.1" not in seen
    # Without the guard the same library reaches the server, which shows that it works.
    seen, done = noted(rebinding, tmp_path, swath, "127.0.0.1", "127.0.0.1", url)
    assert done.returncode == 0 and "connect 127.0.0.1" in seen, done.stderr


def test_a_link_local_name_is_not_followed(server: Files, rebinding: Path, tmp_path: Path, swath: Swath) -> None:
    """Redirects to names are checked by the addresses that the names resolve to, whatever the caller allows."""
    server.script = always(redirect("http://rebind.example/latest/meta-data/"))
    url = f"{server.url}/file.tif"
    for flags in ((), ("--public-only", "--allow-host", "127.0.0.1", "--allow-host", "rebind.example")):
        seen, done = noted(rebinding, tmp_path, swath, "169.254.169.254", "169.254.169.254", url, *flags)
        assert done.returncode == 2 and "link-local address" in done.stderr, done.stderr
        assert "name 169.254.169.254" in seen and "connect 169.254.169.254" not in seen
