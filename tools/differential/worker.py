"""One reader in a process of its own: takes requests as lines of JSON, and answers each with a line.

A file that crashes or hangs a reader takes this process with it, and only this one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

# Larger arrays are not compared: GDAL would take minutes for the size that a changed width declares.
MAX_BYTES = 128 << 20


def summary(array: np.ndarray, keep: str | None) -> dict[str, Any]:
    if keep:
        np.save(keep, array)
    digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "digest": digest}


def by_swath(path: str, keep: str | None) -> dict[str, Any]:
    import swath

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        dataset = swath.Dataset(path)
        size = int(np.prod(dataset.shape)) * np.dtype(dataset.dtype).itemsize
        if size > MAX_BYTES:
            return {"large": size}
        answer = summary(np.asarray(dataset.read()), keep)
    answer["warnings"] = [str(each.message) for each in noted]
    return answer


class WarningRecorder(logging.Handler):
    """Keeps the warnings of GDAL."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def by_gdal(path: str, keep: str | None) -> dict[str, Any]:
    import rasterio

    recorder = WarningRecorder()
    log = logging.getLogger("rasterio")
    log.addHandler(recorder)
    log.propagate = False
    try:
        with rasterio.open(path, driver="GTiff") as dataset:
            size = dataset.width * dataset.height * sum(np.dtype(each).itemsize for each in dataset.dtypes)
            if size > MAX_BYTES:
                return {"large": size}
            info = {"compression": dataset.tags(ns="IMAGE_STRUCTURE").get("COMPRESSION", "NONE")}
            return {**summary(dataset.read(), keep), **info, "warnings": recorder.messages[:5]}
    except Exception as error:
        cause = f"{error.__cause__ or ''}"
        raise RuntimeError(f"{error} {cause} {' '.join(recorder.messages[:5])}") from None
    finally:
        log.removeHandler(recorder)


def main() -> None:
    kind, memory = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.filterwarnings("ignore")
    logging.getLogger("rasterio").setLevel(logging.WARNING)
    read = by_swath if kind == "swath" else by_gdal
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = read(request["path"], request.get("keep"))
        except MemoryError as error:
            answer = {"memory": str(error)}
        except Exception as error:
            answer = {
                "refused": f"{type(error).__name__}: {error}"[:800].replace(str(Path(request["path"]).parent), "")
            }
        except BaseException as error:  # a panic of the engine is not an `Exception`
            answer = {"panic": f"{type(error).__name__}: {error}"[:800]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
