"""Special files are refused as input at once, and never opened or replaced by a write."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import swath as package
from harness import Swath

ODD = {"pipe": "a pipe", "socket": "a socket", "folder": "a folder", "device": "a device", "link": "a pipe"}


@pytest.fixture
def odd(folder: Path) -> Iterator[dict[str, Path]]:
    """One of each kind."""
    found = {name: folder / name for name in ("pipe", "socket", "folder", "link")} | {"device": Path("/dev/zero")}
    os.mkfifo(found["pipe"])
    found["folder"].mkdir()
    found["link"].symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        # Names of sockets are short, and the folder's may be long.
        here = Path.cwd()
        os.chdir(folder)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        yield found


@pytest.mark.parametrize("command", ["info", "validate", "stats", "dump", "preview", "convert"])
def test_the_tool_refuses_special_files_at_once(swath: Swath, folder: Path, odd: dict[str, Path], command: str) -> None:
    out = {"dump": ["--out", folder / "out"], "preview": [folder / "out"], "convert": [folder / "out"]}
    for kind, word in ODD.items():
        run = swath.run(command, odd[kind], *out.get(command, []), timeout=10)
        assert word in run.check_refusal(odd[kind]), run.stderr


def test_a_pipe_on_standard_input_is_refused_with_a_message(swath: Swath, folder: Path) -> None:
    path = folder / "a.tif"
    package.to_geotiff(np.zeros((4, 4), "uint8"), path)
    command = [swath.binary, "info", "/dev/stdin"]
    piped = subprocess.run(command, input=path.read_bytes(), capture_output=True, timeout=10, check=False)
    assert piped.returncode == 2 and b"this is a pipe" in piped.stderr, piped.stderr
    with path.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, timeout=10, check=False)
    assert done.returncode == 0 and b"4 \xc3\x97 4 pixels" in done.stdout, done.stderr


def test_python_refuses_special_files_at_once(odd: dict[str, Path]) -> None:
    for kind, word in ODD.items():
        for opener in ("Dataset", "open_geotiff"):
            # In a process of its own, which can be killed if it blocks.
            code = f"import swath, sys\ntry: swath.{opener}(sys.argv[1])\nexcept OSError as error: print(error)"
            argv = [sys.executable, "-c", code, str(odd[kind])]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
            assert word in done.stdout, (kind, opener, done.stdout)


def mark(name: str) -> int:
    """The hash in the names of unfinished files: FNV-1a of the name."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number


def test_a_planted_pipe_blocks_no_writer(swath: Swath, folder: Path) -> None:
    """Any user can put a pipe into the folder for temporary files, under the name of a dead writer's leftover."""
    source, out = folder / "a.tif", folder / "out.tif"
    package.to_geotiff(np.zeros((40, 40), "uint8"), source)
    pipe, spool = folder / f".swath-{mark(out.name):016x}-1-1.part", folder / ".swath-spool-1-1.part"
    os.mkfifo(pipe)
    os.mkfifo(spool)
    environment = os.environ | {"TMPDIR": str(folder)}
    for target in (out, Path("/dev/stdout")):
        argv = [str(swath.binary), "convert", str(source), str(target), "-q"]
        subprocess.run(argv, env=environment, capture_output=True, timeout=30, check=True)
        code = "import swath, sys; swath.to_geotiff(swath.open_geotiff(sys.argv[1]), sys.argv[2])"
        argv = [sys.executable, "-c", code, str(source), str(target)]
        subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=True)
    assert pipe.is_fifo() and spool.is_fifo()
    pipe.unlink()
    # A leftover has the same name.
    pipe.write_bytes(b"half")
    package.to_geotiff(np.zeros((4, 4), "uint8"), out)
    assert not pipe.exists()


BESIDE = [
    "a.qml", "a.tif.aux.xml", "a.tif.ovr", "a.tif.msk", "a.tif.vat.dbf", "a.tfw", "a.wld", "a.rpb", "a_rpc.txt",
    "a_RPC.TXT", "a.rpc", "a.prj",
]  # fmt: skip


def test_pipes_under_the_names_of_side_files_block_nobody(swath: Swath, folder: Path) -> None:
    """Any user of a shared folder can create them."""
    source, path = folder / "source.tif", folder / "a.tif"
    for target in (source, path):
        package.to_geotiff(np.zeros((40, 40), "uint8"), target)
    for name in BESIDE:
        os.mkfifo(folder / name)
    assert swath.run("info", path, timeout=10).ok
    assert swath.run("convert", path, folder / "b.tif", "-q", timeout=10).ok
    assert swath.run("convert", source, path, "-q", timeout=10).ok
    code = """
import swath, sys
array = swath.open_geotiff(sys.argv[1])
swath.to_geotiff(array, sys.argv[1])
swath.to_geotiff(array, sys.argv[1], category_names=["a"], color_ramp="viridis", color_ramp_range=(0, 9))
assert swath.open_geotiff(sys.argv[1]).attrs["category_names"] == ["a"]
"""
    subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=60, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="two names are exchanged in one step")
@pytest.mark.parametrize("name", ["a.tif.aux.xml", "a_RPC.TXT", "a.tfw"])
def test_a_side_file_that_becomes_a_pipe_blocks_nobody(swath: Swath, folder: Path, name: str) -> None:
    """The name is a file when it is looked at, and may be a pipe when it is opened."""
    path, side, pipe = folder / "a.tif", folder / name, folder / "pipe"
    package.to_geotiff(np.zeros((40, 40), "uint8"), path)
    side.write_text("1\n0\n0\n-1\n0\n0\n")
    os.mkfifo(pipe)
    code = """
import ctypes, sys
exchange = ctypes.CDLL(None).renameat2
while True:
    exchange(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(side), str(pipe)]) as swapping:
        try:
            for _ in range(100):
                swath.run("info", path, timeout=10).check_alive()
        finally:
            swapping.kill()


def test_disks_are_not_written_to(swath: Swath, folder: Path) -> None:
    disk, source = folder / "disk", folder / "a.tif"
    try:
        # The number of the first loop device, which exists without a disk.
        os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    package.to_geotiff(np.zeros((4, 4), "uint8"), source)
    for arguments in (["convert", source, disk, "-q"], ["dump", source, "--out", disk], ["preview", source, disk]):
        assert "this is a disk" in swath.run(*arguments).check_refusal(disk)
    with pytest.raises(OSError, match="this is a disk"):
        package.to_geotiff(np.zeros((4, 4), "uint8"), disk)
    assert disk.is_block_device()
