"""`swath bench`: what it measures, how it checks samples, and that nothing is left behind. No test asserts a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import CORPUS, MIB, ROOT, Run, Swath
from opening import Traffic, pixels, served, write

GOOD = CORPUS / "good"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DRIVER = TARGET / "fake-driver" / "libcuda.so.1"
# Each measurement runs as often as it must, and memory copies are short.
QUICK = ("--seconds", 0, "--max-memory", "64M")

Bench = Callable[..., Run]


@pytest.fixture(scope="module")
def raster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that has windows of every size, and no other file in its folder."""
    path = tmp_path_factory.mktemp("raster") / "scene.tif"
    return write(path, pixels(1, 1060, 1040), blockxsize=256, blockysize=256, predictor=2)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, which is empty again at the end."""
    with tempfile.TemporaryDirectory(prefix="swath-bench-test-") as name:
        yield Path(name)
        assert not list(Path(name).iterdir()), "something was left behind"


@pytest.fixture
def bench(swath: Swath, temporary: Path) -> Bench:
    """Runs the command with the temporary folder."""

    def run(*arguments: object) -> Run:
        return swath.run("bench", *arguments, "--temp-dir", temporary, timeout=120)

    return run


def document(run: Run) -> dict[str, Any]:
    assert run.ok, run.stderr
    assert run.stderr == "", "a pipe gets no progress"
    return json.loads(run.stdout)


def figures(run: Run) -> list[dict[str, Any]]:
    (file,) = document(run)["files"]
    return file["figures"]


def keys(figure: dict[str, Any]) -> tuple[Any, ...]:
    return figure["work"], figure["window"] or figure["layout"], figure["threads"]


def test_every_kind_of_work_has_a_figure_with_its_bound(bench: Bench, raster: Path) -> None:
    found = document(bench(raster, "--json", "--device", "cpu", "--threads", 2, "--runs", 2, *QUICK))
    assert list(found) == ["version", "machine", "files"]
    assert [speed["threads"] for speed in found["machine"]["memory_copy"]] == [1, 2]
    assert found["machine"]["gpus"] == [] and found["machine"]["no_gpu"] == []
    (file,) = found["files"]
    assert (file["width"], file["height"], file["count"], file["dtype"]) == (1040, 1060, 1, "uint16")
    assert (file["compress"], file["predictor"], file["blockxsize"], file["tiled"]) == ("deflate", 2, 256, True)
    assert file["file_size"] == raster.stat().st_size and file["sample_bytes"] == 1040 * 1060 * 2
    assert file["remote"] is False and len(file["file_read"]) == 2
    works = [
        ("read", None),
        ("windows", 256),
        ("windows", 512),
        ("windows", 1024),
        ("write", "geotiff"),
        ("write", "cog"),
    ]
    assert [keys(figure) for figure in file["figures"]] == [(*work, threads) for work in works for threads in (1, 2)]
    for figure in file["figures"]:
        measured = figure["measured"]
        assert figure["reason"] is None and figure["device"] == "cpu" and figure["gpu"] is None
        assert measured["checked"] == "equal"
        assert 1 <= len(measured["seconds"]) <= 2 and all(seconds > 0 for seconds in measured["seconds"])
        assert measured["bytes_per_second"]["best"] >= measured["bytes_per_second"]["median"] > 0
        assert measured["bytes_per_second"]["best"] == pytest.approx(measured["bytes"] / min(measured["seconds"]))
        assert measured["spread"] >= 0
        bounds = {bound["by"]: bound["bytes_per_second"] for bound in measured["bounds"]}
        assert "memory copy" in bounds and len(bounds) == 2
        assert measured["bound"]["bytes_per_second"] == min(bounds.values())
        windows = figure["work"] == "windows"
        assert (measured["windows"] is not None) == windows == (measured["latency"] is not None)
        if windows:
            assert measured["bytes"] == measured["windows"] * figure["window"] ** 2 * 2
            assert measured["latency"]["p95"] >= measured["latency"]["median"] > 0
        else:
            assert measured["bytes"] == file["sample_bytes"]
    read = file["figures"][0]["measured"]
    assert 0 < read["stored_bytes"] < raster.stat().st_size


def test_the_table_names_the_bound_and_nothing_is_left_beside_the_file(bench: Bench, raster: Path) -> None:
    before = sorted(raster.parent.iterdir())
    run = bench(raster, "--device", "cpu", "--runs", 1, *QUICK)
    assert run.ok and run.stderr == "", run.stderr
    lines = run.stdout.splitlines()
    assert any(line.startswith("Memory copy: ") for line in lines)
    assert any("scene.tif: 1040 × 1060, 1 band of uint16, Deflate, predictor 2" in line for line in lines)
    for start in ("read ", "windows 256² ", "write GeoTIFF ", "write COG "):
        assert any(line.startswith(start) and "CPU, 1 thread" in line for line in lines), run.stdout
    assert "compression ratio" in run.stdout
    assert sorted(raster.parent.iterdir()) == before


def test_several_files_and_a_drawing(bench: Bench, raster: Path, folder: Path) -> None:
    small = write(folder / "small & odd <1>.tif", pixels(2, 40, 50))
    out = folder / "out.svg"
    run = bench(raster, small, "--json", "--svg", out, "--device", "cpu", "--threads", 1, *QUICK)
    names = [Path(file["name"]).name for file in document(run)["files"]]
    assert names == ["scene.tif", "small & odd <1>.tif"]
    # No window of a known size fits into the small one.
    assert {figure["work"] for figure in document(run)["files"][1]["figures"]} == {"read", "write"}
    drawing = ET.parse(out).getroot()
    texts = "\n".join(element.text or "" for element in drawing.iter("{http://www.w3.org/2000/svg}text"))
    assert "small & odd <1>.tif" in texts and "windows 1024²" in texts
    bars = [element for element in drawing.iter("{http://www.w3.org/2000/svg}rect") if element.get("x")]
    assert len(bars) == sum(len(file["figures"]) for file in document(run)["files"])


def test_only_what_is_asked_for(swath: Swath, bench: Bench, raster: Path, folder: Path) -> None:
    only = figures(bench(raster, "--json", "--only", "windows", "--device", "cpu", "--threads", 1, *QUICK))
    assert [keys(figure) for figure in only] == [("windows", side, 1) for side in (256, 512, 1024)]
    both = figures(bench(raster, "--json", "--only", "read,write", "--device", "cpu", "--threads", 1, *QUICK))
    assert [figure["work"] for figure in both] == ["read", "write", "write"]
    # Without writes no folder is needed.
    run = swath.run("bench", raster, "--only", "read", "--temp-dir", folder / "absent", "--device", "cpu", *QUICK)
    assert run.ok, run.stderr
    refused = swath.run("bench", raster, "--only", "write", "--temp-dir", folder / "absent", *QUICK).check_refusal()
    assert "--temp-dir" in refused and not (folder / "absent").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ("--runs", 0),
        ("--only", "reads"),
        ("--seconds", -1),
        ("--seconds", "nan"),
        ("--max-memory", "lots"),
        ("--device", "gpu"),
        ("--max-device-memory", "x"),
    ],
)
def test_wrong_values_are_refused(swath: Swath, raster: Path, wrong: tuple[object, ...]) -> None:
    run = swath.run("bench", raster, *wrong)
    assert run.code == 2 and str(wrong[0]) in run.stderr and "panicked" not in run.stderr, run.stderr


def test_a_missing_file_is_reported_before_others_are_measured(bench: Bench, raster: Path, folder: Path) -> None:
    run = bench(raster, folder / "absent.tif", "--device", "cpu")
    assert "absent.tif" in run.check_refusal() and run.stdout == ""


def test_damage_is_an_error(bench: Bench, raster: Path, folder: Path) -> None:
    content = bytearray(raster.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    damaged = folder / "damaged.tif"
    damaged.write_bytes(content)
    run = bench(damaged, "--device", "cpu", *QUICK)
    assert "damaged.tif" in run.check_refusal(damaged) and run.stdout == ""


@pytest.mark.parametrize(
    "name",
    [
        "ccittfax4.tif",
        "jpeg-ycbcr.tif",
        "jpeg2000-uint16.tif",
        "lerc_zstd-float32.tif",
        "webp-rgba.tif",
        "codec-lzma-complex64.tif",
        "codec-none-uint16.tif",
        "cog-sparse.tif",
        "mask-internal.tif",
        "nbits-1.tif",
        "nbits-12.tif",
        "palette.tif",
        "pages.tif",
        "predictor3-deflate-float32.tif",
    ],
)
def test_files_of_every_kind(bench: Bench, name: str) -> None:
    for figure in figures(bench(GOOD / name, "--json", "--device", "cpu", "--threads", 2, "--runs", 1, *QUICK)):
        lossy = name.startswith("jpeg-") and figure["work"] == "write"
        assert figure["measured"], figure
        assert figure["measured"]["checked"] == ("equal, lossy" if lossy else "equal")


def test_a_codec_that_cannot_be_written_is_a_reason(bench: Bench) -> None:
    found = figures(bench(GOOD / "jpegxl-uint8.tif", "--json", "--device", "cpu", "--threads", 1, *QUICK))
    assert [(figure["work"], figure["reason"]) for figure in found if not figure["measured"]] == [
        ("write", "JPEG XL cannot be written")
    ] * 2
    assert found[0]["work"] == "read" and found[0]["measured"]


def test_memory_is_bounded_and_large_rasters_are_read_in_parts(bench: Bench, folder: Path) -> None:
    array = pixels(2, 5000, 6000)
    path = write(folder / "large.tif", array, blockxsize=256, blockysize=256, compress="zstd")
    run = bench(path, "--json", "--device", "cpu", "--threads", 2, "--runs", 1, "--seconds", 2, "--max-memory", "64M")
    found = {keys(figure): figure["measured"] for figure in figures(run)}
    assert array.nbytes > 100 * MIB
    assert found["write", "geotiff", 1]["bytes"] <= 32 * MIB, "only a part of it is written"
    assert found["read", None, 2]["bytes"] >= 10 * MIB
    assert run.peak < 128 * MIB, run.peak


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_removes_the_written_files(swath: Swath, temporary: Path, folder: Path, name: str) -> None:
    path = write(folder / "slow.tif", pixels(1, 3000, 3000), blockxsize=512, blockysize=512, compress="lzma")
    arguments = ["bench", path, "--only", "write", "--temp-dir", temporary, "--device", "cpu", "--seconds", "60"]
    process = subprocess.Popen([swath.binary, *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    end = time.monotonic() + 60
    while not list(temporary.rglob("*.part")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(getattr(signal, name))
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and out == b""


# ----------------------------------------------------------------------------------------------------------------- GPU


@pytest.fixture(scope="module")
def fake_driver() -> None:
    """The fake driver, rebuilt if a kernel changed."""
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)


def on_device(swath: Swath, *arguments: object, driver: object = DRIVER, script: str = "") -> tuple[int, str, str]:
    environment = {**os.environ, "SWATH_FAKE_DRIVER": script, "SWATH_CUDA_DRIVER": str(driver)}
    done = subprocess.run(
        [swath.binary, "bench", *map(str, arguments)], capture_output=True, timeout=120, env=environment, text=True
    )
    assert "panicked" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.usefixtures("fake_driver")
def test_every_gpu_is_measured_beside_the_cpu(swath: Swath, temporary: Path) -> None:
    path = GOOD / "predictor3-deflate-float32.tif"
    code, out, err = on_device(
        swath, path, "--json", "--threads", 2, "--runs", 2, "--temp-dir", temporary, *QUICK, script="devices=2"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [gpu["ordinal"] for gpu in found["machine"]["gpus"]] == [0, 1]
    assert all(gpu["to_device"] > 0 and gpu["from_device"] > 0 for gpu in found["machine"]["gpus"])
    listed = found["files"][0]["figures"]
    assert [(figure["device"], figure["threads"], figure["gpu"]) for figure in listed if figure["work"] == "read"] == [
        ("cpu", 1, None),
        ("cpu", 2, None),
        ("cuda", None, 0),
        ("cuda", None, 1),
    ]
    for figure in listed:
        assert figure["measured"] and figure["measured"]["checked"] == "equal", figure
        by = [bound["by"] for bound in figure["measured"]["bounds"]]
        assert any("GPU × compression ratio" in bound for bound in by) == (figure["device"] == "cuda")


@pytest.mark.usefixtures("fake_driver")
def test_windows_of_a_gpu_have_the_samples_of_the_cpu(swath: Swath, raster: Path) -> None:
    code, out, err = on_device(swath, raster, "--json", "--only", "windows", "--threads", 1, *QUICK)
    assert (code, err) == (0, "")
    listed = json.loads(out)["files"][0]["figures"]
    assert [figure["device"] for figure in listed] == ["cpu", "cuda"] * 3
    assert all(figure["measured"]["checked"] == "equal" for figure in listed)


@pytest.mark.usefixtures("fake_driver")
def test_what_a_gpu_cannot_do_is_a_reason(swath: Swath, temporary: Path) -> None:
    path = GOOD / "codec-lzma-float32.tif"
    code, out, err = on_device(swath, path, "--json", "--device", "cuda", "--temp-dir", temporary, *QUICK)
    assert (code, err) == (0, "")
    by_work = {figure["work"]: figure for figure in json.loads(out)["files"][0]["figures"]}
    assert "LZMA is not decoded on the GPU" in by_work["read"]["reason"] and by_work["read"]["measured"] is None
    # The CPU compresses the tiles that the GPU cut.
    assert by_work["write"]["measured"] and "CPU" in " ".join(by_work["write"]["notes"])


def test_a_missing_gpu_is_a_line_or_an_error(swath: Swath, raster: Path) -> None:
    only = ("--only", "read", *QUICK)
    code, out, _ = on_device(swath, raster, *only, driver="/nowhere/libcuda.so.1")
    assert code == 0 and "GPU not measured: " in out and "cannot be loaded" in out
    code, out, err = on_device(swath, raster, *only, "--device", "cuda", driver="/nowhere/libcuda.so.1")
    assert code == 2 and out == "" and "no GPU to measure" in err


# -------------------------------------------------------------------------------------------------------------- remote


@pytest.fixture(scope="module")
def remote_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    noise = np.random.default_rng(5).integers(0, 60_000, (1, 3000, 3000), "u2")
    path = tmp_path_factory.mktemp("remote") / "noise.tif"
    return write(path, noise, blockxsize=256, blockysize=256).read_bytes()


def test_a_remote_file_costs_no_more_than_allowed(swath: Swath, temporary: Path, remote_file: bytes) -> None:
    traffic = Traffic()
    assert len(remote_file) > 16 * MIB
    with served({"/a.tif": remote_file}, traffic) as address:
        arguments = ["bench", f"{address}/a.tif", "--json", "--temp-dir", temporary, "--device", "cpu", "--threads", 2]
        for option, limit in (("8M", 8 * MIB), ("128M", 128 * MIB)):
            traffic.bodies.clear()
            done = subprocess.run(
                [swath.binary, *map(str, arguments), "--max-remote-bytes", option, *map(str, QUICK)],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert sum(traffic.bodies) <= limit
            (file,) = json.loads(done.stdout)["files"]
            assert file["remote"] is True
            by_work = {figure["work"]: figure for figure in file["figures"]}
            assert by_work["read"]["measured"]["checked"] == "equal"
            assert by_work["read"]["measured"]["bytes"] < file["sample_bytes"] or option == "128M"
            assert by_work["write"]["measured"]["checked"] == "equal"
            assert {figure["threads"] for figure in file["figures"]} == {2}


def test_a_budget_that_is_too_small_is_a_reason_or_an_error(swath: Swath, remote_file: bytes) -> None:
    with served({"/a.tif": remote_file}) as address:
        arguments = ["bench", f"{address}/a.tif", "--json", "--only", "read,windows", "--device", "cpu", *QUICK]
        done = subprocess.run(
            [swath.binary, *map(str, arguments), "--max-remote-bytes", "500k"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    reasons = [figure["reason"] for figure in file["figures"] if not figure["measured"]]
    assert reasons and all("--max-remote-bytes" in reason for reason in reasons)
