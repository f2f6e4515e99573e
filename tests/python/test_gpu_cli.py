"""`swath devices` and `--device` on the fake driver: devices, refusals, notices, and the same samples."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio
from harness import CORPUS, ROOT, Swath
from rio_cogeo.cogeo import cog_validate

GOOD = CORPUS / "good"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DRIVER = TARGET / "fake-driver" / "libcuda.so.1"
DEFLATE = GOOD / "predictor3-deflate-float32.tif"
LZMA = GOOD / "codec-lzma-float32.tif"


def run(
    swath: Swath, *arguments: object, driver: Path | None = DRIVER, script: str = "", kernels: str = ""
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command with this driver."""
    environment = {
        **os.environ,
        "SWATH_CUDA_KERNELS": kernels,
        "SWATH_FAKE_DRIVER": script,
        "SWATH_CUDA_DRIVER": str(driver or "/nowhere/libcuda.so.1"),
    }
    done = subprocess.run(
        [swath.binary, *map(str, arguments)], capture_output=True, timeout=60, env=environment, text=True
    )
    assert "panicked" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module", autouse=True)
def fake_driver() -> None:
    """The fake driver, rebuilt if a kernel changed."""
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)


def test_devices_are_listed_with_driver_memory_and_libraries(swath: Swath) -> None:
    code, out, _ = run(swath, "devices", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["driver"]["found"] and found["driver"]["cuda"] == "12.2"
    (device,) = found["devices"]
    assert device["usable"] and device["memory"] == 2 << 30 and device["compute_capability"] == "9.0"
    assert [library["name"] for library in found["libraries"]] == ["nvCOMP", "nvJPEG", "nvJPEG2000", "cuFile"]
    assert all(library["found"] or library["reason"] for library in found["libraries"])
    _, text, _ = run(swath, "devices")
    assert "compute capability 9.0" in text


@pytest.mark.parametrize(
    ("script", "kernels", "form"),
    [
        ("", "", "machine code for sm_90"),
        ("capability=89", "", "machine code for sm_86"),
        ("capability=70", "", "PTX, compiled by the driver"),
        ("", "ptx", "PTX, compiled by the driver"),
    ],
)
def test_devices_list_the_form_of_their_kernels(swath: Swath, script: str, kernels: str, form: str) -> None:
    (device,) = json.loads(run(swath, "devices", "--json", script=script, kernels=kernels)[1])["devices"]
    assert device["kernels"] == form
    assert f"kernels: {form}\n" in run(swath, "devices", script=script, kernels=kernels)[1]
    code, _, err = run(swath, "stats", DEFLATE, "--device", "cuda", script=script, kernels=kernels)
    assert (code, err) == (0, "")


def test_refused_machine_code_causes_one_notice_and_none_where_ptx_is_requested(swath: Swath, tmp_path: Path) -> None:
    def convert(kernels: str) -> tuple[int, str, str]:
        out = tmp_path / f"out-{kernels}.tif"
        return run(
            swath, "convert", DEFLATE, out, "--cog", "--device", "cuda", script="refuse_cubin=209", kernels=kernels
        )

    code, _, err = convert("")
    assert code == 0 and err.count("note: ") == 1 and "refused machine code for sm_90" in err
    code, _, err = convert("ptx")
    assert code == 0 and "note: " not in err


def test_an_unusable_device_gets_no_kernels(swath: Swath) -> None:
    (device,) = json.loads(run(swath, "devices", "--json", script="capability=61")[1])["devices"]
    assert not device["usable"] and device["kernels"] is None


@pytest.mark.parametrize(
    ("driver", "script", "reason"),
    [
        (None, "", "cannot be loaded"),
        (DRIVER, "devices=0", "no CUDA-capable device"),
        (DRIVER, "version=11040", "CUDA 11.4"),
        (DRIVER.parent / "old" / "libcuda.so.1", "", "has no cu"),
        (DRIVER.parent / "empty" / "libcuda.so.1", "", "has no cu"),
    ],
)
def test_a_missing_driver_is_a_reason_and_not_an_error(
    swath: Swath, driver: Path | None, script: str, reason: str
) -> None:
    code, out, _ = run(swath, "devices", "--json", driver=driver, script=script)
    found = json.loads(out)
    assert code == 0
    assert not found["driver"]["found"] and reason in found["driver"]["reason"], found
    code, _, err = run(swath, "stats", DEFLATE, "--device", "cuda", driver=driver, script=script)
    assert code == 2 and reason in err
    code, out, err = run(swath, "stats", DEFLATE, "--json", "--device", "auto", driver=driver, script=script)
    assert code == 0 and err.count("note: ") == 1 and reason in err
    assert out == run(swath, "stats", DEFLATE, "--json")[1]


@pytest.mark.parametrize(
    "name", ["predictor3-deflate-float32.tif", "codec-lzw-uint16.tif", "nbits-12.tif", "cog-sparse.tif"]
)
def test_samples_are_the_same(swath: Swath, folder: Path, name: str) -> None:
    arrays = []
    for device in ("cpu", "cuda"):
        out = folder / f"{device}.npy"
        code, _, err = run(swath, "dump", GOOD / name, "--out", out, "--device", device, script="async=1 seed=5")
        assert (code, err) == (0, "")
        arrays.append(np.load(out))
    assert arrays[0].tobytes() == arrays[1].tobytes()


@pytest.mark.parametrize(
    "name",
    ["predictor3-deflate-float32.tif", "codec-lzw-uint16.tif", "nbits-12.tif", "cog-sparse.tif", "mask-internal.tif",
     "mask-external.tif", "mask-alpha.tif", "cog-zstd-mask.tif"],
)  # fmt: skip
def test_statistics_are_the_same_and_no_pixels_come_back(swath: Swath, name: str) -> None:
    arguments = ("stats", GOOD / name, "--json")
    code, out, err = run(swath, *arguments, "--device", "cuda", "--stats", script="async=1 seed=5")
    assert (code, out) == (0, run(swath, *arguments)[1]), err
    figures = dict(line.split(None, 1) for line in err.splitlines() if not line.startswith("from device"))
    assert "note:" not in figures and "0 by the CPU" in figures["tiles"] and int(figures["launches"]) >= 3, err
    (back,) = (line for line in err.splitlines() if line.startswith("from device"))
    assert int(back.split(", ")[1].split("(")[-1].split()[0]) < 4096, err


def test_statistics_of_more_than_the_memory_are_the_same(swath: Swath, tmp_path: Path) -> None:
    path = tmp_path / "large.tif"
    samples = (np.indices((5300, 5000)).sum(0) // 7).astype(np.uint8)
    with rasterio.open(
        path, "w", driver="GTiff", width=5000, height=5300, count=1, dtype="uint8", nodata=7, tiled=True
    ) as file:
        file.write(samples, 1)
    arguments = ("stats", path, "--json")
    wanted = run(swath, *arguments)[1]
    for memory, notes in (("1g", 0), ("200m", 0), ("16m", 1)):
        device = ("--device", "cuda", "--max-device-memory", memory)
        code, out, err = run(swath, *arguments, *device, script="async=1 seed=5")
        assert (code, out) == (0, wanted), err
        assert err.count("note: ") == notes, err


def test_tiles_that_the_gpu_cannot_decode_are_refused_or_reported(swath: Swath) -> None:
    code, _, err = run(swath, "stats", LZMA, "--device", "cuda")
    assert code == 2 and "LZMA is not decoded on the GPU" in err
    code, _, err = run(swath, "stats", LZMA, "--device", "auto")
    assert code == 0 and err.count("note: ") == 1 and "LZMA" in err


def test_stats_report_the_work_of_the_gpu(swath: Swath) -> None:
    code, _, err = run(swath, "compare", DEFLATE, DEFLATE, "--device", "cuda", "--stats")
    stats = dict(line.split(None, 1) for line in err.splitlines())
    assert code == 0 and stats["device"] == "Swath fake device"
    assert stats["launches"].isdigit() and "by the GPU, 0 by the CPU" in stats["tiles"]


def test_stats_report_the_work_of_storage(swath: Swath, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([ROOT / "tools/fake-driver/libraries.sh"], check=True, capture_output=True)
    monkeypatch.setenv("SWATH_CUDA_LIBRARIES", str((TARGET / "fake-driver" / "libraries").resolve()))
    monkeypatch.setenv("SWATH_CUFILE", "always")
    arguments = ("stats", DEFLATE, "--json", "--device", "cuda", "--stats")
    code, out, err = run(swath, *arguments)
    stats = dict(line.split(None, 1) for line in err.splitlines())
    assert code == 0 and out == run(swath, "stats", DEFLATE, "--json")[1]
    assert stats["storage"].startswith("cuFile, compatibility mode; ") and "note:" not in stats, err
    monkeypatch.setenv("SWATH_FAKE_STORAGE", "fail_from=1")
    code, again, err = run(swath, *arguments)
    assert code == 0 and again == out
    assert err.count("note: ") == 1 and "pinned memory" in err and "I/O error" in err, err


def test_too_little_memory_is_refused_with_both_numbers(swath: Swath, folder: Path) -> None:
    arguments = ("dump", DEFLATE, "--out", folder / "x.npy", "--device", "cuda", "--max-device-memory", "1k")
    code, _, err = run(swath, *arguments)
    assert code == 2 and "of device memory and 1024 may be used" in err
    assert run(swath, *arguments[:-2], "--max-device-memory", "lots")[0] == 2


@pytest.mark.parametrize("codec", ["none", "packbits", "lzw", "deflate", "zstd"])
def test_a_cog_written_by_the_gpu_is_valid_and_equal_for_all(swath: Swath, tmp_path: Path, codec: str) -> None:
    out = tmp_path / "out.tif"
    arguments = ["--cog", "--compress", codec, "--tile", "256", "--device", "cuda", "--stats"]
    code, _, stderr = run(swath, "convert", DEFLATE, out, *arguments, script="async=1 seed=5")
    assert code == 0, stderr
    assert "0 by the CPU" in stderr
    valid, errors, warnings = cog_validate(str(out), quiet=True)
    assert valid and not errors and not warnings, (errors, warnings)
    assert run(swath, "validate", out, "--full")[0] == 0
    with rasterio.open(DEFLATE) as before, rasterio.open(out) as after:
        assert np.array_equal(before.read(), after.read(), equal_nan=True)
        assert (before.crs, before.transform, before.nodata) == (after.crs, after.transform, after.nodata)


def test_a_conversion_without_a_gpu_fails_or_reports_that_the_cpu_writes(swath: Swath, tmp_path: Path) -> None:
    out = tmp_path / "out.tif"
    code, _, stderr = run(swath, "convert", DEFLATE, out, "--device", "cuda", driver=None)
    assert code == 2 and "no CUDA device" in stderr and not list(tmp_path.iterdir())
    code, _, stderr = run(swath, "convert", DEFLATE, out, "--device", "auto", driver=None)
    assert code == 0 and stderr.count("the CPU writes") == 1, stderr
    plain = tmp_path / "plain.tif"
    assert run(swath, "convert", DEFLATE, plain)[0] == 0
    assert plain.read_bytes() == out.read_bytes()


def test_too_little_device_memory_is_reported_before_the_write_begins(swath: Swath, tmp_path: Path) -> None:
    out = tmp_path / "out.tif"
    code, _, stderr = run(swath, "convert", DEFLATE, out, "--device", "cuda", "--max-device-memory", "64K")
    assert code == 2 and "max_device_memory" in stderr and not list(tmp_path.iterdir()), stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nan_becomes_nodata_on_request(swath: Swath, tmp_path: Path, device: str) -> None:
    samples = np.arange(90 * 70, dtype=np.float32).reshape(70, 90)
    samples[10:30, 20:60] = np.nan
    source, out = tmp_path / "in.tif", tmp_path / "out.tif"
    with rasterio.open(source, "w", driver="GTiff", width=90, height=70, count=1, dtype="float32", nodata=-1.5) as file:
        file.write(samples, 1)
    code, _, stderr = run(swath, "convert", source, out, "--cog", "--tile", "32", "--device", device, "--nan-to-nodata")
    assert code == 0, stderr
    with rasterio.open(out) as file:
        assert np.array_equal(file.read(1), np.where(np.isnan(samples), -1.5, samples))
        assert not np.isnan(file.read(1, out_shape=(35, 45))).any()


def test_missing_nvcomp_is_reported_and_zstd_needs_none_to_be_read(swath: Swath, tmp_path: Path) -> None:
    out, again = tmp_path / "out.tif", tmp_path / "again.tif"
    code, _, stderr = run(swath, "convert", DEFLATE, out, "--compress", "zstd", "--device", "cuda", "--nvcomp")
    assert code == 0 and ("swath's own kernels: nvCOMP" in stderr or "note" not in stderr), stderr
    code, _, stderr = run(swath, "convert", out, again, "--device", "cuda", "--trust-input")
    assert code == 0 and "note" not in stderr, stderr
    with rasterio.open(DEFLATE) as before, rasterio.open(again) as after:
        assert np.array_equal(before.read(), after.read(), equal_nan=True)
