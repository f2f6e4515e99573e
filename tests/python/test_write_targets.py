"""Targets of writes: special files are written to, not replaced, and a replaced file keeps its owner and mode."""

from __future__ import annotations

import io
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import swath as package
from harness import Swath, scratch

# A command of the tool that writes `out`; the package writes in a process of its own.
COMMANDS: dict[str, Callable[[Swath, Path, Path], list[str]]] = {
    "convert": lambda tool, source, out: [str(tool.binary), "convert", str(source), str(out), "-q"],
    "dump": lambda tool, source, out: [str(tool.binary), "dump", str(source), "--out", str(out)],
    "preview": lambda tool, source, out: [str(tool.binary), "preview", str(source), str(out)],
    "package": lambda _, source, out: [
        sys.executable,
        "-c",
        "import swath, sys; swath.to_geotiff(swath.open_geotiff(sys.argv[1]), sys.argv[2])",
        str(source),
        str(out),
    ],
}


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    with scratch() as name:
        path = Path(name) / "source.tif"
        noise = np.random.default_rng(1).integers(0, 256, (500, 500)).astype("uint8")
        package.to_geotiff(noise, path)
        yield path


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest, swath: Swath, source: Path) -> Callable[[Path], list[str]]:
    return lambda out: COMMANDS[request.param](swath, source, out)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def run(argv: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, stderr=subprocess.PIPE, timeout=60, check=False, **options)  # type: ignore[call-overload]


def written(argv: list[str], **options: object) -> None:
    done = run(argv, **options)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def want(command: Callable[[Path], list[str]], folder: Path) -> bytes:
    """The bytes that an ordinary file gets."""
    path = folder / "want"
    written(command(path))
    try:
        return path.read_bytes()
    finally:
        path.unlink()


def test_devices_are_written_into(command: Callable[[Path], list[str]], folder: Path) -> None:
    """Root could replace them."""
    if os.geteuid() == 0:
        null = folder / "null"
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        null = Path("/dev/null")
    link = folder / "link"
    link.symlink_to(null)
    for path in (null, link):
        written(command(path))
        assert path.is_char_device() and link.is_symlink()
    assert set(names(folder)) <= {"link", "null"}


def test_pipes_and_sockets_are_written_into(command: Callable[[Path], list[str]], folder: Path, want: bytes) -> None:
    pipe, link = folder / "pipe", folder / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with (folder / "read").open("wb") as read, subprocess.Popen(["cat", pipe], stdout=read) as reader:
            try:
                written(command(path))
                reader.wait(timeout=10)
            finally:
                reader.kill()
        assert (folder / "read").read_bytes() == want
        assert pipe.is_fifo() and link.is_symlink()
    # Names of sockets are short.
    place = Path(f"/tmp/swath-{os.getpid()}.sock")
    got = io.BytesIO()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        try:
            server.listen()
            server.settimeout(60)

            def listen() -> None:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as stream:
                    got.write(stream.read())

            thread = threading.Thread(target=listen)
            thread.start()
            written(command(place))
            thread.join()
            assert place.is_socket()
        finally:
            place.unlink()
    assert got.getvalue() == want and names(folder) == ["link", "pipe", "read"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_open_files_are_written_into(
    command: Callable[[Path], list[str]], folder: Path, want: bytes, name: str
) -> None:
    path = folder / "out"
    path.write_bytes(b"before")
    number = path.stat().st_ino
    for mode, before in (("wb", b""), ("ab", want), ("ab", want + want)):
        with path.open(mode) as file:
            written(command(Path(name)), stdout=file)
        assert path.read_bytes() == before + want and path.stat().st_ino == number
    piped = run(command(Path(name)), stdout=subprocess.PIPE)
    assert piped.stdout == want and names(folder) == ["out"]


def test_links_to_files_stay_links(command: Callable[[Path], list[str]], folder: Path, want: bytes) -> None:
    real, link = folder / "real", folder / "link"
    real.write_bytes(b"old")
    link.symlink_to("real")
    written(command(link))
    assert link.is_symlink() and real.read_bytes() == want and names(folder) == ["link", "real"]


def test_owner_and_mode_stay(command: Callable[[Path], list[str]], folder: Path) -> None:
    path = folder / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    owner = (os.getuid(), os.getgid())
    if os.geteuid() == 0:
        owner = (1234, 2345)
        os.chown(path, *owner)
    written(command(path))
    found = path.stat()
    assert (found.st_uid, found.st_gid) == owner and stat.S_IMODE(found.st_mode) == 0o640 and found.st_size > 3


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_size_limit_keeps_the_old_file(
    command: Callable[[Path], list[str]], folder: Path, want: bytes, part: int
) -> None:
    """`ulimit -f`: a byte beyond the limit brings a signal that ends a process which does not expect it."""
    path = folder / "a"
    path.write_bytes(b"old")
    size = len(want) * part // 4

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = run(command(path), preexec_fn=limited)
    assert done.returncode in (1, 2) and b"too large" in done.stderr, done.stderr
    assert path.read_bytes() == b"old" and names(folder) == ["a"]


def test_full_disk_keeps_the_old_file(command: Callable[[Path], list[str]], want: bytes, tmp_path: Path) -> None:
    place = tmp_path / "full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={len(want) // 2}", "swath-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        path = place / "a"
        path.write_bytes(b"old")
        done = run(command(path))
        assert done.returncode in (1, 2) and b"No space left" in done.stderr, done.stderr
        assert path.read_bytes() == b"old" and names(place) == ["a"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("what", ["dump", "preview"])
def test_interrupted(swath: Swath, folder: Path, what: str) -> None:
    """An incomplete file leaves nothing behind."""
    path = folder / "source.tif"
    package.to_geotiff(np.zeros((4, 6000, 6000), "uint8"), path, compression="none")
    for wait in (0.02, 0.05, 0.1, 0.2):
        process = subprocess.Popen(COMMANDS[what](swath, path, folder / "out"), stderr=subprocess.DEVNULL)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) in (130, 0, -signal.SIGINT)
        (folder / "out").unlink(missing_ok=True)
        assert names(folder) == ["source.tif"]


def test_bytesio_is_replaced() -> None:
    """The old content goes, longer or not, at any position; the position is then at the end, as after any write."""
    first, second = np.ones((600, 700), "uint16"), np.zeros((50, 60), "uint8")
    file = io.BytesIO(b"x" * 5_000_000)
    file.seek(100)
    for data in (first, second, first):
        package.to_geotiff(data, file)
        assert file.tell() == len(file.getvalue())
        alone = io.BytesIO()
        package.to_geotiff(data, alone)
        assert file.getvalue() == alone.getvalue()
        assert (np.asarray(package.open_geotiff(file))[0] == data).all()


def test_bytesio_that_is_being_read_stays() -> None:
    file = io.BytesIO()
    package.to_geotiff(np.ones((60, 70), "uint8"), file)
    array = package.open_geotiff(file, chunks=32)
    with pytest.raises(package.WriteError, match="cannot be re-sized"):
        package.to_geotiff(np.zeros((600, 700), "uint8"), file)
    assert (np.asarray(array)[0] == 1).all()


def test_other_streams_go_on(folder: Path) -> None:
    path = folder / "a.bin"
    with path.open("wb") as file:
        file.write(b"head")
        package.to_geotiff(np.ones((60, 70), "uint8"), file)
    assert path.read_bytes()[:6] == b"headII"
