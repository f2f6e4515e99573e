"""Files of other projects over a network: HTTP gives what memory gives, and S3 gets what a disk gets (R13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
from harness import SHARED_CORPUS, UNDER_CI, Swath
from remote import Files
from remote_stores import Store

# Damaged files of the corpus cause warnings that are not tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lies beyond the end of the file:swath.SwathWarning"),
    pytest.mark.filterwarnings("ignore:.*as libtiff repairs them:swath.SwathWarning"),
    pytest.mark.filterwarnings("ignore:.*PackBits:swath.SwathWarning"),
]

pytest_plugins = ("remote_fixtures",)

SUFFIXES = (".tif", ".tiff", ".btf")
FOUND = (path for path in sorted(SHARED_CORPUS.rglob("*")) if path.is_file() and path.suffix.lower() in SUFFIXES)
FILES = [path for path in FOUND if path.stat().st_size]


def test_corpus_is_there() -> None:
    """Without the corpus no test below runs: this one reports it, and fails where the corpus is required."""
    if FILES:
        assert len(FILES) > 200
        return
    assert not UNDER_CI, f"{SHARED_CORPUS} is missing, and under CI it must be there"
    pytest.skip("the shared corpus is not beside the checkout; its reads over HTTP were skipped")


def outcome(source: Any) -> tuple[Any, ...]:
    """Pixels and facts of a file, or its error."""
    try:
        dataset = swath.Dataset(source)
        pixels = np.asarray(dataset.read())
    except swath.Error as error:
        return type(error).__name__, error.reason
    return pixels.dtype, pixels.shape, pixels.tobytes(), len(dataset.overview_sizes)


def test_http_gives_what_memory_gives() -> None:
    names = {f"/{number}.tif": path for number, path in enumerate(FILES)}
    server = Files({name: path.read_bytes() for name, path in names.items()})
    differing = [path for name, path in names.items() if outcome(f"{server.url}{name}") != outcome(path.read_bytes())]
    assert differing == []


@pytest.mark.parametrize("number", range(8))
def test_s3_gets_what_a_disk_gets(swath: Swath, s3: Store, tmp_path: Path, number: int) -> None:
    """A regular sample of the corpus that can be converted, as a COG from HTTP to S3 and from disk to disk."""
    options = ["--endpoint", s3.options["endpoint"], "--region", s3.options["region"]]
    for key in ("aws_access_key_id", "aws_secret_access_key"):
        options += ["--remote-option", f"{key}={s3.options[key]}"]
    converted = 0
    for path in FILES[number :: len(FILES) // 8 or 1]:
        local = tmp_path / "local.tif"
        server = Files({"/a.tif": path.read_bytes()})
        done = swath.run("convert", path, local, "--cog", "--quiet")
        address = s3.address(f"corpus-{number}.tif")
        sent = swath.run("convert", f"{server.url}/a.tif", address, "--cog", "--quiet", *options)
        assert sent.code == done.code, (path, sent.stderr, done.stderr)
        if done.code == 0:
            assert s3.get(f"corpus-{number}.tif") == local.read_bytes(), path
            converted += 1
    assert s3.uploads() == []
    assert converted > 0 or not FILES
