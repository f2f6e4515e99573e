"""Writes to object stores: the object is the local file byte for byte, or there is none, and no upload is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import swath
from harness import MIB, Swath, record, torture
from remote import Answer, Fault, Request, Respond
from remote_faults import after, first, silent, status
from remote_readers import equal_pixels
from remote_stores import Proxy, Store

pytest_plugins = ("remote_fixtures",)

# Stores with multipart uploads; Azure has blocks, which cannot be listed.
PARTED = ("s3", "gcs")


@pytest.fixture(params=("s3", "azure", "gcs"))
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    found.forget_uploads()
    return found


@pytest.fixture(params=PARTED)
def proxied(request: pytest.FixtureRequest) -> Iterator[tuple[Store, Proxy, dict[str, Any]]]:
    """A store, the proxy before it, and the options for it."""
    store: Store = request.getfixturevalue(request.param)
    store.forget_uploads()
    with Proxy(store.url) as proxy:
        yield store, proxy, {**store.at(proxy.url), "retries": 3}


@cache
def noise(rows: int = 4096, columns: int = 4096, dtype: str = "u2") -> np.ndarray:
    """Noise that no codec compresses: the file is as large as the array, in many parts."""
    rng = np.random.default_rng(rows + columns)
    return rng.integers(0, 256, (rows, columns * np.dtype(dtype).itemsize), "u1").view(dtype)


# Arrays to write, and their options.
CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "one pixel": ((1, 1), {}),
    "small COG": ((300, 200), {"cog": True}),
    "plain, 8 MiB": ((2048, 2048), {"compression": "deflate"}),
    "COG, 40 MiB, three large levels": ((4096, 4096), {"cog": True, "compression": "deflate", "tile_size": 256}),
    "COG, 85 MiB": ((5632, 5632), {"cog": True, "compression": "none"}),
    "uncompressed strips, 8 MiB": ((2048, 2048), {"compression": "none", "tiled": False}),
    "BigTIFF COG, 11 MiB": ((2048, 2048), {"cog": True, "bigtiff": True, "compression": "zstd"}),
}
LARGE = "COG, 40 MiB, three large levels"


@cache
def local(name: str) -> bytes:
    shape, options = CASES[name]
    return swath.to_geotiff(noise(*shape), None, crs=32633, **options)


def send(name: str, address: str, options: dict[str, Any]) -> None:
    shape, words = CASES[name]
    swath.to_geotiff(noise(*shape), address, crs=32633, storage_options=options, **words)


def same_bytes(got: bytes | None, want: bytes) -> None:
    assert got is not None, "there is no object"
    if got != want:
        place = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        pytest.fail(f"{len(got)} bytes instead of {len(want)}, other from byte {place} on")


# --------------------------------------------------------------------------------------------------------------- equal


@pytest.mark.parametrize("name", CASES)
def test_the_object_is_the_local_file(store: Store, name: str) -> None:
    key = f"equal/{name} ü+%.tif"
    send(name, store.address(key), store.options)
    same_bytes(store.get(key), local(name))
    assert store.uploads() == []


def test_a_dask_array_is_streamed(store: Store) -> None:
    pixels = noise(3000, 3000)
    want = swath.to_geotiff(pixels, None, cog=True, tile_size=256, compression="deflate")
    lazy = da.from_array(pixels, chunks=(300, 1500))
    words = {"cog": True, "tile_size": 256, "compression": "deflate", "storage_options": store.options}
    swath.to_geotiff(lazy, store.address("dask.tif"), **words)
    same_bytes(store.get("dask.tif"), want)


def test_the_command_writes_objects(store: Store, swath: Swath, folder: Path) -> None:
    source, target = folder / "source.tif", folder / "target.tif"
    source.write_bytes(local("plain, 8 MiB"))
    assert swath.run("convert", source, target, "--cog", "--compress", "deflate").ok
    settings = [f"--remote-option={name}={value}" for name, value in store.options.items() if "_" in name]
    if "region" in store.options:
        settings.append(f"--region={store.options['region']}")
    flags = ["--cog", "--compress", "deflate", f"--endpoint={store.options['endpoint']}", *settings]
    run = swath.run("convert", source, store.address("command.tif"), *flags, "--stats")
    assert run.ok, run.stderr
    same_bytes(store.get("command.tif"), target.read_bytes())
    # And from store to store.
    run = swath.run("convert", store.address("command.tif"), store.address("again.tif"), *flags)
    assert run.ok, run.stderr
    assert store.get("again.tif") is not None
    assert all(str(value) not in run.stdout + run.stderr for name, value in store.options.items() if "key" in name)


def test_an_object_is_replaced_whole(store: Store) -> None:
    send("small COG", store.address("again.tif"), store.options)
    send("plain, 8 MiB", store.address("again.tif"), store.options)
    same_bytes(store.get("again.tif"), local("plain, 8 MiB"))


def test_what_was_written_is_what_is_read(s3: Store) -> None:
    """Also by a read that might have a handle of the old object."""
    for rows in (64, 96):
        swath.to_geotiff(noise(rows, 64), s3.address("turns.tif"), storage_options=s3.options)
        assert swath.read(s3.address("turns.tif"), storage_options=s3.options).shape == (1, rows, 64)


WRITER = """
import json, resource, sys
import dask, dask.array as da
import numpy as np
import swath

address, rows, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
words = {"cog": True, "compression": "deflate", "compression_level": 1, "max_memory": 64 << 20}

def block(block_info=None):
    place = block_info[None]
    return np.random.default_rng(place["chunk-location"]).integers(0, 65536, place["chunk-shape"], "u2")

def write(array, target):
    with dask.config.set(scheduler="threads", num_workers=2):
        swath.to_geotiff(array, target, storage_options=options, **words)

write(da.zeros((512, 512), chunks=256, dtype="u2"), address + ".warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write(da.map_blocks(block, chunks=((256,) * (rows // 256), (8192,)), dtype="u2"), address)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded_and_nothing_lies_on_disk(s3: Store, folder: Path) -> None:
    """256 MiB of noise and its overviews; there is no folder for temporary files."""
    command = [sys.executable, "-W", "ignore", "-c", WRITER, s3.address("large.tif"), "16384", json.dumps(s3.options)]
    environment = {**os.environ, "TMPDIR": str(folder / "none"), "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 176 * MIB, f"{int(done.stdout) >> 10} MiB more than before"
    assert list(folder.iterdir()) == []
    stored = s3.get("large.tif")
    assert stored is not None and len(stored) > 320 * MIB
    want = np.random.default_rng((63, 0)).integers(0, 65536, (256, 8192), "u2")
    equal_pixels(np.asarray(swath.read(stored, 1, window=swath.Window(0, 16128, 8192, 256))), want)


# -------------------------------------------------------------------------------------------------------------- faults

PASSES: dict[str, Fault] = {"status 500": status(500), "status 503": status(503), "reset": silent("reset")}


@pytest.mark.parametrize("name", PASSES)
def test_parts_that_fail_are_sent_again(proxied: tuple[Store, Proxy, dict[str, Any]], name: str) -> None:
    store, proxy, options = proxied
    proxy.script = first(2, PASSES[name], "PUT", "partNumber")
    send(LARGE, store.address("retried.tif"), options)
    same_bytes(store.get("retried.tif"), local(LARGE))
    assert store.uploads() == []


def test_a_part_whose_answer_was_lost_is_sent_again(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    proxy.script = first(2, after("reset"), "PUT", "partNumber")
    send(LARGE, store.address("lost.tif"), options)
    same_bytes(store.get("lost.tif"), local(LARGE))
    assert store.uploads() == []


def parts_of(proxy: Proxy) -> list[Request]:
    return [request for request in proxy.requests if request.method == "PUT" and "partNumber" in request.query]


@pytest.mark.parametrize("part", [1, 2, 4])
def test_a_part_that_never_arrives_leaves_nothing(proxied: tuple[Store, Proxy, dict[str, Any]], part: int) -> None:
    store, proxy, options = proxied
    store.put("kept.tif", b"what was there")
    bad: list[str] = []

    def script(request: Request) -> Fault | None:
        if request.method != "PUT" or "partNumber" not in request.query:
            return None
        if len(parts_of(proxy)) == part:
            bad.append(request.target)
        return status(500) if request.target in bad else None

    proxy.script = script
    with pytest.raises(swath.WriteError) as raised:
        send(LARGE, store.address("kept.tif"), {**options, "retries": 1})
    assert "kept.tif" in str(raised.value) and "nobody-may-print" not in str(raised.value)
    assert store.get("kept.tif") == b"what was there"
    assert store.uploads() == []


@pytest.mark.parametrize("code", [400, 403, 404])
def test_a_refused_part_leaves_nothing(proxied: tuple[Store, Proxy, dict[str, Any]], code: int) -> None:
    store, proxy, options = proxied
    proxy.script = lambda request: status(code) if "partNumber" in request.query else None
    with pytest.raises(swath.WriteError):
        send(LARGE, store.address("refused.tif"), options)
    assert store.get("refused.tif") is None
    assert store.uploads() == []


def completing(fault: Fault, count: int) -> Any:
    left = iter(range(count))

    def script(request: Request) -> Fault | None:
        meant = request.method == "POST" and "uploadId" in request.query
        return fault if meant and next(left, None) is not None else None

    return script


@pytest.mark.parametrize("name", ["status 500", "status 503", "reset", "answer lost"])
def test_a_completion_that_fails_is_retried(proxied: tuple[Store, Proxy, dict[str, Any]], name: str) -> None:
    """Also where it succeeded and only the response was lost."""
    store, proxy, options = proxied
    key = f"completed {name}.tif"
    proxy.script = completing({**PASSES, "answer lost": after("reset")}[name], 1)
    send(LARGE, store.address(key), options)
    same_bytes(store.get(key), local(LARGE))
    assert store.uploads() == []


def test_a_completion_that_never_succeeds_leaves_nothing(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    store.put("kept.tif", b"what was there")
    proxy.script = completing(status(500), 1000)
    with pytest.raises(swath.WriteError):
        send(LARGE, store.address("kept.tif"), {**options, "retries": 1})
    assert store.get("kept.tif") == b"what was there"
    assert store.uploads() == []


def test_an_error_inside_a_success_is_an_error(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    """S3 sends the status before it knows whether the completion succeeds."""
    store, proxy, options = proxied
    body = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>Try again.</Message></Error>"
    proxy.script = completing(lambda _request, _respond: Answer(200, {}, body), 1000)
    with pytest.raises(swath.WriteError):
        send(LARGE, store.address("inside.tif"), {**options, "retries": 1})
    assert store.get("inside.tif") is None
    assert store.uploads() == []


@pytest.mark.parametrize("name", PASSES)
def test_small_objects_are_retried(store: Store, name: str) -> None:
    address = store.url.partition("//")[2].partition("/")[0]
    with Proxy(f"http://{address}") as proxy:
        proxy.script = first(1, PASSES[name])
        send("small COG", store.address("small.tif"), store.at(proxy.url))
        same_bytes(store.get("small.tif"), local("small COG"))


def test_a_missing_bucket_is_reported(store: Store) -> None:
    with pytest.raises(swath.WriteError) as raised:
        swath.to_geotiff(noise(16, 16), f"{store.scheme}://no-such-bucket/a.tif", storage_options=store.options)
    assert "no-such-bucket" in str(raised.value)


def test_plain_servers_are_not_written_to() -> None:
    with pytest.raises((swath.UsageError, swath.WriteError), match="s3"):
        swath.to_geotiff(noise(16, 16), "http://127.0.0.1:9/a.tif")


# ----------------------------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("name", PARTED)
def test_an_exception_leaves_nothing(name: str, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(name)
    store.forget_uploads()
    store.put("kept.tif", b"what was there")
    pixels = noise()

    def block(part: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"][0] == 14:
            raise ZeroDivisionError("a block that cannot be computed")
        return part

    lazy = da.map_blocks(block, da.from_array(pixels, chunks=(256, 4096)), dtype=pixels.dtype, meta=pixels[:0])
    with pytest.raises(ZeroDivisionError):
        swath.to_geotiff(
            lazy, store.address("kept.tif"), compression="none", max_memory=32 * MIB, storage_options=store.options
        )
    assert store.get("kept.tif") == b"what was there"
    assert store.uploads() == []


INTERRUPTED = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import swath

rows = np.random.default_rng(1).integers(0, 65536, (4096, 4096), "u2")
try:
    swath.to_geotiff(rows, sys.argv[1], compression="none", storage_options=json.loads(sys.argv[2]))
except KeyboardInterrupt:
    sys.exit(42)
"""


def wait_for_a_part(proxy: Proxy, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not parts_of(proxy):
        assert process.poll() is None and time.monotonic() < until, "no part was ever sent"
        time.sleep(0.02)


def test_ctrl_c_leaves_nothing(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    """Parts are slow here, so that the interrupt comes during the write."""
    store, proxy, options = proxied
    proxy.script = slow_parts
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, store.address("stopped.tif"), json.dumps(options)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_a_part(proxy, process)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=30)[1]
    finally:
        process.kill()
    assert process.returncode == 42, stderr
    assert store.get("stopped.tif") is None
    assert store.uploads() == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_stopped_command_leaves_nothing(
    proxied: tuple[Store, Proxy, dict[str, Any]], swath: Swath, folder: Path, name: str
) -> None:
    store, proxy, options = proxied
    source, key = folder / "source.tif", f"stopped by {name}.tif"
    source.write_bytes(local(LARGE))
    proxy.script = slow_parts
    settings = [f"--remote-option={key}={value}" for key, value in options.items() if "_" in key]
    command = [str(swath.binary), "convert", str(source), store.address(key), "--compress", "none", *settings]
    process = subprocess.Popen([*command, f"--endpoint={options['endpoint']}"], stderr=subprocess.PIPE, text=True)
    try:
        wait_for_a_part(proxy, process)
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode != 0
    assert store.get(key) is None
    assert store.uploads() == []


def slow_parts(request: Request) -> Fault | None:
    if "partNumber" in request.query:
        time.sleep(2)
    return None


# -------------------------------------------------------------------------------------------------------------- killed


def commanded(tool: Swath, source: Path, store: Store, options: dict[str, Any], key: str) -> list[str]:
    """The command that uploads a file."""
    settings = [f"--remote-option={name}={value}" for name, value in options.items() if "_" in name]
    if "region" in options:
        settings.append(f"--region={options['region']}")
    flags = ["--compress", "none", f"--endpoint={options['endpoint']}", *settings]
    return [str(tool.binary), "convert", str(source), store.address(key), *flags]


@pytest.mark.parametrize("name", ["s3", "azure", "gcs"])
def test_an_upload_that_is_killed_is_never_half_visible(
    name: str, request: pytest.FixtureRequest, folder: Path
) -> None:
    """W8: SIGKILL at each request, before the store gets it or while it does: the object is the old one, or none, and
    the new one only where the store received the request to complete it."""
    store, tool = request.getfixturevalue(name), request.getfixturevalue("swath")
    source, want = folder / "source.tif", folder / "want.tif"
    swath.to_geotiff(noise(), source, compression="none")
    assert tool.run("convert", source, want, "--compress", "none").ok
    store.forget_uploads()
    with Proxy(store.url) as proxy:
        options = {**store.at(proxy.url), "retries": 3}
        sound = subprocess.run(commanded(tool, source, store, options, "killed.tif"), capture_output=True, text=True)
        assert sound.returncode == 0, sound.stderr
        same_bytes(store.get("killed.tif"), want.read_bytes())
        # The count varies from run to run: the number of parts depends on how fast they are sent.
        count = sum(sent.method in ("PUT", "POST") for sent in proxy.requests)
        assert count >= 4, f"{count} requests: the file is too small to go in parts"
        tries = lost = whole = 0
        for turn in range(torture()):
            # Alternates both ways, with and without an object of that name; tries both where the upload is completed.
            places = [(at, (at + turn) % 2 == 0) for at in range(1, count)] + [(1000, False), (1000, True)]
            for at, taken in places:
                tries += 1
                old = b"what was there" if (at // 2 + turn) % 2 else None
                key = f"killed {turn} {at} {taken}.tif"
                if old:
                    store.put(key, old)
                found, completed = killed_at(proxy, commanded(tool, source, store, options, key), at, taken)
                got = store.get(key)
                whole += got == want.read_bytes()
                fine = got == old or (completed and got == want.read_bytes())
                lost += not fine
                assert fine, f"{found}, taken {taken}: {len(got or b'')} bytes"
                store.forget_uploads()
    record("W8", f"uploads to {store.scheme}:// killed at a request", tries, tries - lost, lost)
    assert whole >= torture(), "an upload that the store was told to complete is there"
    # The store still works, and the name can be written again.
    send("small COG", store.address("killed 0 1 False.tif"), store.options)
    same_bytes(store.get("killed 0 1 False.tif"), local("small COG"))


def completes(request: Request) -> bool:
    return "comp=blocklist" in request.query or (request.method == "POST" and "uploadId" in request.query)


def killed_at(proxy: Proxy, command: list[str], at: int, taken: bool) -> tuple[str, bool]:
    """Kills a command at its `at`-th request that changes something, or at the one that completes the upload; the store
    takes it all the same or never gets it. Returns that request, and whether the store received the completion."""
    proxy.forget()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    turn, over = threading.Lock(), threading.Event()
    seen = 0
    completing_requests: list[Request] = []

    def script(request: Request) -> Fault | None:
        nonlocal seen
        if request.method not in ("PUT", "POST"):
            return None
        with turn:
            seen += 1
            number, ended = seen, bool(completing_requests)
            if (number >= at or completes(request)) and not ended:
                completing_requests.append(request)
        if number < at and not completes(request):
            return None
        if ended:
            # Requests after the kill do not count.
            return silent("close")

        def kill(request: Request, respond: Respond) -> Answer:
            process.kill()
            process.wait(timeout=30)
            answer = respond() if taken else silent("close")(request, respond)
            over.set()
            return answer

        return kill

    proxy.script = script
    try:
        assert over.wait(60), f"request {at} never came: {process.poll()}"
    finally:
        process.kill()
        process.wait(timeout=30)
        proxy.script = None
    # Requests in flight end before the store is checked.
    time.sleep(0.05)
    last = completing_requests[0]
    return f"{last.method} {last.target}", taken and completes(last)
