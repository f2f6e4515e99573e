"""Addresses in the Python package and the command: options, errors, traffic figures, and secrets that stay hidden."""

from __future__ import annotations

import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import fsspec
import numpy as np
import obstore
import pytest
import swath as sw
import xarray as xr
from harness import Swath
from opening import Traffic, pixels, served, write

ARRAY = pixels(1, 400, 400)
SECRET = "hush-hush"


@dataclass
class Server:
    """A loopback server with one file, `/a.tif`."""

    address: str
    files: dict[str, Any]
    traffic: Traffic

    @property
    def url(self) -> str:
        return f"{self.address}/a.tif"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(
        tmp_path_factory.mktemp("front") / "a.tif", ARRAY, compress=None, blockxsize=64, blockysize=64
    ).read_bytes()


@pytest.fixture
def server(content: bytes) -> Iterator[Server]:
    files: dict[str, Any] = {"/a.tif": content, "/bucket/a.tif": content}
    traffic = Traffic()
    with served(files, traffic) as address:
        yield Server(address, files, traffic)


@pytest.fixture
def tool(swath: Swath) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the tool with this process's environment, in which loopback needs no proxy."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        argv = [str(swath.binary), *map(str, arguments)]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_headers_and_users_arrive(server: Server) -> None:
    options = {"headers": {"X-Who": "me", "X-Why": "test"}}
    np.testing.assert_array_equal(np.asarray(sw.Dataset(server.url, storage_options=options).read(1)), ARRAY[0])
    assert len(server.traffic.requests) > 1
    assert {(each.get("X-Who"), each.get("X-Why")) for _, each in server.traffic.requests} == {("me", "test")}


def test_figures_are_the_servers_own(server: Server) -> None:
    dataset = sw.Dataset(server.url)
    for window in ((0, 0, 100, 100), (200, 200, 400, 400), (0, 0, 100, 100)):
        y, x, bottom, right = window
        np.testing.assert_array_equal(np.asarray(dataset.read(1, window)), ARRAY[0, y:bottom, x:right])
    stats = dataset.remote_stats
    assert stats is not None and sorted(stats) == ["cache_hits", "received", "requests", "retries", "sent"]
    assert stats["requests"] == len(server.traffic.requests) > 1
    assert stats["received"] == sum(server.traffic.bodies)
    assert (stats["retries"], stats["sent"]) == (0, 0)


def test_a_local_file_has_no_traffic(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    # A local path needs no options, but code that handles paths and addresses alike passes them.
    assert sw.Dataset(path, storage_options={"anonymous": True}).remote_stats is None
    assert sw.Dataset(content).remote_stats is None


@pytest.mark.parametrize("options", [{"max_remote_bytes": 40_000}, {"max_remote_requests": 1}])
def test_budgets_end_a_read(server: Server, options: dict[str, Any]) -> None:
    dataset = sw.Dataset(server.url, storage_options=options)
    with pytest.raises(sw.LimitError, match=r"a\.tif"):
        dataset.read()
    assert sum(server.traffic.bodies) <= 40_000 + len(ARRAY.tobytes()) // 10


def test_stores_are_signed_unless_anonymous(server: Server) -> None:
    place = {"endpoint": server.address, "region": "here"}
    open_ = {**place, "anonymous": True}
    np.testing.assert_array_equal(np.asarray(sw.read("s3://bucket/a.tif", 1, storage_options=open_)), ARRAY[0])
    assert server.traffic.requests and not any("Authorization" in each for _, each in server.traffic.requests)
    del server.traffic.requests[:]
    theirs = {"client_kwargs": {"endpoint_url": server.address, "region_name": "here"}, "key": "ID", "secret": SECRET}
    ours = {**place, "aws_access_key_id": "ID", "aws_secret_access_key": SECRET}
    for options in (theirs, ours):
        array = sw.open_geotiff("s3://bucket/a.tif", storage_options=options)
        np.testing.assert_array_equal(array.values, ARRAY)
    signed = {each.get("Authorization", "").partition("/")[0] for _, each in server.traffic.requests}
    assert signed == {"AWS4-HMAC-SHA256 Credential=ID"}


@pytest.mark.parametrize(
    ("status", "kind", "builtin"),
    [
        (404, "MissingError", FileNotFoundError),
        (403, "DeniedError", PermissionError),
        (401, "DeniedError", PermissionError),
        (503, "UnavailableError", ConnectionError),
    ],
)
def test_refusals_are_exceptions_of_their_kind(server: Server, status: int, kind: str, builtin: type) -> None:
    server.files[f"/a.tif?key={SECRET}"] = status
    with pytest.raises(builtin) as refused:
        sw.Dataset(f"{server.url}?key={SECRET}", storage_options={"retries": 0})
    error = refused.value
    assert type(error).__name__ == kind and isinstance(error, sw.SourceError)
    assert error.file == server.url and SECRET not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


def test_silence_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.tif"
        with pytest.raises(TimeoutError, match=r"a\.tif") as refused:
            sw.Dataset(url, storage_options={"deadline": 0.4})
    assert isinstance(refused.value, sw.SourceError)


def test_a_file_that_changes_is_opened_again(server: Server, content: bytes, tmp_path: Path) -> None:
    other = write(tmp_path / "b.tif", ARRAY[:, ::-1], compress=None, blockxsize=32, blockysize=32).read_bytes()
    assert len(other) != len(content)
    dataset = sw.Dataset(server.url)
    kept = np.asarray(sw.read(server.url, 1, (0, 0, 10, 10)))
    np.testing.assert_array_equal(kept, ARRAY[0, :10, :10])
    lazy = pickle.dumps(sw.open_geotiff(server.url, chunks={}))
    token = dask.base.tokenize(sw.open_geotiff(server.url, chunks={}).data)
    server.files["/a.tif"] = other
    with pytest.raises(sw.ChangedError, match="open it again"):
        dataset.read()
    # A new open of the address means the file that is there now.
    np.testing.assert_array_equal(np.asarray(sw.read(server.url, 1)), ARRAY[0, ::-1])
    with pytest.raises(sw.ChangedError, match="open it again"):
        pickle.loads(lazy).compute()
    assert dask.base.tokenize(sw.open_geotiff(server.url, chunks={}).data) != token


def test_addresses_travel_with_their_options(server: Server) -> None:
    options = {"headers": {"X-Who": SECRET}}
    dataset = sw.Dataset(server.url, storage_options=options)
    lazy = sw.open_geotiff(server.url, chunks=128, storage_options=options)
    unread = xr.open_dataarray(server.url, engine="swath", mask_and_scale=False, storage_options=options)
    del server.traffic.requests[:]
    again, blocks, engine = pickle.loads(pickle.dumps((dataset, lazy, unread)))
    np.testing.assert_array_equal(np.asarray(again.read()), ARRAY)
    with dask.config.set(scheduler="threads", num_workers=4):
        np.testing.assert_array_equal(blocks.values, ARRAY)
    np.testing.assert_array_equal(engine.values, ARRAY)
    assert server.traffic.requests
    assert {each.get("X-Who") for _, each in server.traffic.requests} == {SECRET}
    for shown in (dataset, lazy, unread, again._source, again._source.pickled, lazy.encoding, blocks.data.dask):
        assert SECRET not in repr(shown)


def test_info_stats_and_validate_take_options(server: Server) -> None:
    options = {"headers": {"X-Who": "me"}}
    assert sw.info(server.url, storage_options=options)["width"] == 400
    assert sw.stats(server.url, storage_options=options)["bands"][0]["max"] == int(ARRAY.max())
    assert sw.validate(server.url, storage_options=options)["valid"] in (True, False)
    assert {each.get("X-Who") for _, each in server.traffic.requests} == {"me"}


def test_objects_bring_their_own_options(content: bytes) -> None:
    fsspec.filesystem("memory").pipe("/front/a.tif", content)
    store = obstore.store.MemoryStore()
    obstore.put(store, "a.tif", content)
    for source in ("memory://front/a.tif", fsspec.open("memory://front/a.tif"), (store, "a.tif")):
        np.testing.assert_array_equal(np.asarray(sw.read(source)), ARRAY)
    for source in (content, (store, "a.tif"), sw.Dataset(content)):
        with pytest.raises(sw.UsageError, match="storage_options"):
            sw.read(source, storage_options={"anonymous": True})
        with pytest.raises(sw.UsageError, match="storage_options"):
            sw.open_geotiff(source, storage_options={"anonymous": True})


@pytest.mark.parametrize(
    "options",
    [
        {"anonymous": SECRET},
        {"headers": SECRET},
        {"headers": {"X": 1}},
        {"max_remote_bytes": SECRET},
        {"retries": -1},
        {"retries": True},
        {"deadline": 0},
        {"timeout": SECRET},
        {"endpoint": 5},
        {"allowed_hosts": [5]},
        {"aws_access_key_id": [SECRET]},
        {"anon": True, "anonymous": False},
        {"client_kwargs": {"verify": SECRET}},
        {"client_kwargs": SECRET},
        {5: SECRET},
        [SECRET],
    ],
)
def test_wrong_options_are_named_without_their_values(options: Any) -> None:
    with pytest.raises(sw.UsageError, match="storage_options") as refused:
        sw.Dataset("http://127.0.0.1:9/a.tif", storage_options=options)
    assert SECRET not in str(refused.value)
    word = next(iter(options))
    assert str(word) in str(refused.value) or word in (5, SECRET, "anon")
    with pytest.raises(sw.UsageError, match="storage_options"):
        sw.to_geotiff(np.ones((4, 4), "uint8"), "s3://bucket/a.tif", storage_options=options)


def test_plain_servers_are_not_written_to() -> None:
    with pytest.raises(sw.UsageError, match="s3://") as refused:
        sw.to_geotiff(np.ones((4, 4), "uint8"), f"https://me:{SECRET}@host.invalid/a.tif?key={SECRET}")
    assert SECRET not in str(refused.value)


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import swath
try:
    dataset = swath.Dataset(sys.argv[1])
    print("open", flush=True)
    sys.stdin.readline()
    dataset.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("opened", [False, True])
def test_an_interrupt_ends_what_a_silent_server_holds_up(server: Server, opened: bool) -> None:
    never = threading.Event()
    if not opened:
        server.files["/a.tif"] = never
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WAITING, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdin is not None and child.stdout is not None
        if opened:
            assert child.stdout.readline() == "open\n"
            server.files["/a.tif"] = never
            child.stdin.write("\n")
            child.stdin.flush()
        before = 1 if opened else 0
        until = time.monotonic() + 60
        while len(server.traffic.requests) <= before and time.monotonic() < until:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        # Its own deadline is three minutes away.
        output, _ = child.communicate(timeout=30)
        assert output.endswith("interrupted\n")
    finally:
        never.set()
        child.kill()
        child.wait()


def test_the_tool_reports_the_cost_of_info(server: Server, tool: Any) -> None:
    done = tool("info", server.url, "--header", "X-Who: me", "--header", "X-Why:test")
    assert done.returncode == 0, done.stderr
    requests, received = len(server.traffic.requests), sum(server.traffic.bodies)
    plural = "request" if requests == 1 else "requests"
    assert done.stdout.splitlines()[-1] == f"Remote: {requests} {plural}, {received} bytes"
    assert {(each.get("X-Who"), each.get("X-Why")) for _, each in server.traffic.requests} == {("me", "test")}
    del server.traffic.requests[:], server.traffic.bodies[:]
    found = json.loads(tool("info", server.url, "--json").stdout)
    counted = len(server.traffic.requests), sum(server.traffic.bodies)
    assert found["remote"] == {"requests": counted[0], "retries": 0, "received": counted[1], "sent": 0}
    assert found["name"] == server.url


def test_every_command_takes_an_address(server: Server, tool: Any, content: bytes, folder: Path) -> None:
    local = folder / "a.tif"
    local.write_bytes(content)
    for command in (
        ("stats", server.url, "--stats"),
        ("validate", server.url, "--stats"),
        ("compare", server.url, local, "--stats"),
        ("preview", server.url, folder / "a.png", "--stats"),
        ("dump", server.url, "--out", folder / "a.npy", "--stats"),
        ("convert", server.url, folder / "b.tif", "--header", "A: 1", "--header", "B: 2", "--stats"),
    ):
        del server.traffic.requests[:], server.traffic.bodies[:]
        done = tool(*command)
        assert done.returncode == 0, (command, done.stderr)
        figures = {line[:12].strip(): line[12:].strip() for line in done.stderr.splitlines()}
        assert figures["requests"] == str(len(server.traffic.requests)), command
        assert figures["retries"] == "0" and figures["sent"] == "0 bytes"
        assert f"{sum(server.traffic.bodies)} bytes" in figures["received"]
        assert figures["cache hits"].endswith("tiles")
        if command[0] == "convert":
            assert {(each.get("A"), each.get("B")) for _, each in server.traffic.requests} == {("1", "2")}
    np.testing.assert_array_equal(np.load(folder / "a.npy"), ARRAY)
    np.testing.assert_array_equal(np.asarray(sw.read(folder / "b.tif")), ARRAY)


def test_the_tool_keeps_budgets_and_secrets(server: Server, tool: Any, folder: Path) -> None:
    url = f"{server.url.replace('//', f'//me:{SECRET}@')}?key={SECRET}"
    server.files[f"/a.tif?key={SECRET}"] = server.files["/a.tif"]
    options = ("--header", f"X-Who: {SECRET}", "--remote-option", f"aws_secret_access_key={SECRET}")
    runs = [
        tool("info", url, *options),
        tool("info", url, "--json", *options),
        tool("dump", url, "--out", folder / "a.npy", "--max-remote-bytes", "40k", *options),
        tool("stats", url, "--stats", "--max-remote-requests", 1, *options),
        tool("convert", url, f"https://me:{SECRET}@host.invalid/b.tif?key={SECRET}", *options),
        tool("info", url, "--header", SECRET),
        tool("info", url, "--remote-option", SECRET),
        tool("info", url, "--remote-timeout", "-1"),
        tool("info", f"ftp://me:{SECRET}@host.invalid/a.tif?key={SECRET}"),
        tool("dump", server.url, "--out", f"s3://bucket/a.npy?key={SECRET}"),
        tool("info", server.url, f"{url}&more"),
        tool("convert", server.url, f"ftp://me:{SECRET}@host.invalid/a.tif"),
    ]
    for number, done in enumerate(runs):
        assert SECRET not in done.stdout + done.stderr, done.args
        assert done.returncode == (0 if number < 2 else 2), (done.args, done.stderr)
        assert number < 2 or done.stderr.startswith("error: "), done.stderr
    assert "Authorization" in server.traffic.requests[0][1]
    assert not (folder / "a.npy").exists()
    for done, words in zip(runs[-4:], ("the scheme ftp://", "local files only", "unexpected", "the scheme ftp://")):
        assert words in done.stderr


def test_the_tool_signs_unless_anonymous(server: Server, tool: Any) -> None:
    place = ("info", "s3://bucket/a.tif", "--endpoint", server.address, "--region", "here")
    for flag in ("--anonymous", "--no-sign-request"):
        done = tool(*place, flag)
        assert done.returncode == 0, done.stderr
    assert not any("Authorization" in each for _, each in server.traffic.requests)
    keys = ("--remote-option", "aws_access_key_id=ID", "--remote-option", f"aws_secret_access_key={SECRET}")
    done = tool(*place, *keys)
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr
    assert server.traffic.requests[-1][1]["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=ID/")


def test_the_tool_retries_as_often_as_requested(server: Server, tool: Any) -> None:
    server.files["/broken.tif"] = 503
    for retries in (0, 2):
        before = len(server.traffic.requests)
        done = tool("info", server.url.replace("a.tif", "broken.tif"), "--retries", retries)
        assert done.returncode == 2 and "503" in done.stderr, done.stderr
        assert len(server.traffic.requests) - before == retries + 1


def test_strict_mode_refuses_private_hosts(server: Server, tool: Any) -> None:
    with pytest.raises(PermissionError) as refused:
        sw.Dataset(server.url, storage_options={"public_only": True})
    assert isinstance(refused.value, sw.SourceError)
    assert tool("info", server.url, "--public-only").returncode == 2
    assert not server.traffic.requests
    host = server.address.removeprefix("http://")
    assert sw.Dataset(server.url, storage_options={"public_only": True, "allowed_hosts": [host]}).width == 400
    assert tool("info", server.url, "--public-only", "--allow-host", host).returncode == 0
