"""Every way into `to_geotiff` and back on the fake driver, with the stand-ins for CuPy and torch: see `matrix.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT
from matrix import GROUPS, INSIDE, LIBRARIES, differences

HERE = Path(__file__).resolve().parent
STAND_INS = HERE / "stand_ins"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DRIVER = TARGET / "fake-driver" / "libcuda.so.1"

# Groups of each process; one process runs per core, and all take about the same time.
SHARES = (
    ("numpy", "cupy", "cupy view", "torch", "torch on the host", "types", "views", "blocks", "reading", "refusals"),
    ("dask", "dask cupy", "destinations", "mixed", "round trips", "without a GPU", "a GPU that fails"),
)


def environment(script: str = "async=1 seed=5") -> dict[str, str]:
    """Environment of a process that finds the fake driver, and the stand-ins under the names of CuPy and torch."""
    paths = [str(STAND_INS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "SWATH_CUDA_DRIVER": str(DRIVER),
        "SWATH_FAKE_DRIVER": script,
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Results of every group; a process that dies loses the groups that it had not finished."""
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("matrix")
    runs = []
    for number, names in enumerate(SHARES):
        out, log = folder / f"{number}.json", folder / f"{number}.log"
        command = [sys.executable, str(HERE / "matrix.py"), "--only", ",".join(names), "--out", str(out)]
        with log.open("w") as file:
            run = subprocess.Popen(
                [*command, "--dir", str(folder)], env=environment(), stdout=file, stderr=subprocess.STDOUT
            )
        runs.append((names, run, out, log))
    found: dict[str, dict[str, Any]] = {}
    for names, run, out, log in runs:
        run.wait(timeout=600)
        done = json.loads(out.read_text()) if out.exists() else {}
        died = {"cases": 0, "failed": [{"name": "the process", "error": log.read_text()[-3000:]}], "files": {}}
        found.update({name: done.get(name, died) for name in names})
        # The fake driver ends a process that used it wrongly with 97.
        if run.returncode not in (0, 1):
            found[names[-1]]["failed"].append(
                {"name": f"exit status {run.returncode}", "error": log.read_text()[-3000:]}
            )
    return found


def test_every_group_is_run() -> None:
    assert sorted([*SHARES[0], *SHARES[1], INSIDE]) == sorted(GROUPS)


@pytest.mark.parametrize("group", [name for share in SHARES for name in share])
def test_no_case_fails(results: dict[str, dict[str, Any]], group: str) -> None:
    done = results[group]
    assert not done["failed"], "\n".join(f"{each['name']}: {each['error']}" for each in done["failed"][:20])
    # With the stand-ins there is nothing to leave out.
    assert done["cases"] >= 25 and not done["left_out"], done["left_out"]


def test_files_do_not_depend_on_the_library_that_holds_the_samples(results: dict[str, dict[str, Any]]) -> None:
    assert not differences(results)
    compared = {key for name in LIBRARIES for key in results[name]["files"]}
    assert sum("encoded by cuda" in key for key in compared) >= 25
    assert sum("encoded by cpu" in key for key in compared) >= 25


def test_gpu_examples_of_the_documents_run(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    command = [sys.executable, HERE / "documented.py", *documents, "--out", out]
    run = subprocess.run(
        list(map(str, command)), env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(out.read_text())
    assert sum('device="cuda"' in line for line in found["ran"]) >= 4
    assert any("torch.from_dlpack" in line for line in found["ran"])
