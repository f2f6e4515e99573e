"""swath against GDAL: damaged files, random conversions, reference systems and overviews (tools/differential)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness import ROOT, SHARED_CORPUS, UNDER_CI, torture

COUNT = 2000


def test_swath_and_gdal_agree_or_there_is_a_reason() -> None:
    if not SHARED_CORPUS.is_dir() and not UNDER_CI:
        pytest.skip("the shared corpus is not beside the checkout; nothing was damaged")
    # The long run uses another seed than the short one.
    seed = "1" if torture() == 1 else "2026"
    script = ROOT / "tools" / "differential" / "run.py"
    argv = [sys.executable, str(script), "--count", str(COUNT * torture()), "--seed", seed]
    done = subprocess.run(
        [*argv, *(["--again"] if torture() == 1 else [])], capture_output=True, text=True, check=False
    )
    print(done.stdout[-2000:])
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
