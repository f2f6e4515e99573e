"""Everyday steps with real rasters on a GPU give the host's files: see `everyday.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, SHARED_RASTERS, UNDER_CI
from test_py_matrix import HERE, environment


def test_files_from_the_gpu_are_those_of_the_host(tmp_path: Path) -> None:
    rasters = sorted(SHARED_RASTERS.glob("*.tif"))
    if not rasters and not UNDER_CI:
        pytest.skip("the shared rasters are not beside the checkout")
    assert len(rasters) >= 9, f"real rasters are missing in {SHARED_RASTERS}"
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    command = [sys.executable, HERE / "everyday.py", tmp_path, *rasters]
    run = subprocess.run(list(map(str, command)), env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
