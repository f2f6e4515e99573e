"""Writes in children that are killed: each line of standard input says how many seconds a child gets.

Python and its packages start once; a child is forked for each write and ended by SIGKILL when its time is up. Its
status goes to standard output.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import dask
import dask.array as da
import numpy as np
import swath
import xarray as xr

SIDE = 1500


def main() -> None:
    way, path, kind = sys.argv[1:4]
    values = (np.add.outer(np.arange(SIDE) * 5, np.arange(SIDE) * 3) % 1000 + np.arange(SIDE) % 7).astype("uint16")
    chunks = xr.DataArray(da.from_array(values, chunks=(200, 500)), dims=("y", "x"))
    data = chunks if way == "streamed" else values[None]
    dask.config.set(scheduler="synchronous")
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            swath.to_geotiff(data, path, cog=kind == "cog", tile_size=128)
            os._exit(0)
        deadline = time.monotonic() + float(line)
        status: tuple[int, int] = (0, 0)
        while status[0] == 0:
            status = os.waitpid(child, os.WNOHANG)
            if status[0] == 0 and time.monotonic() >= deadline:
                os.kill(child, signal.SIGKILL)
                status = os.waitpid(child, 0)
            time.sleep(0.0005)
        print(os.waitstatus_to_exitcode(status[1]), flush=True)


if __name__ == "__main__":
    main()
