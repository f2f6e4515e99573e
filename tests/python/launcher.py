"""Starts commands from a small process, so that a child's peak memory is its own.

Linux counts the memory of the process that calls `exec` towards the peak (`ru_maxrss`) of the program it starts: run
from a test process that holds numpy and GDAL, every child would seem to need hundreds of megabytes. This process stays
at a few; one JSON request a line on standard input, one JSON answer a line on standard output.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time


def run(argv: list[str], stdout: str, stderr: str, timeout: float) -> dict[str, object]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, stdout, flags, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, stderr, flags, 0o644),
    ]
    started = time.perf_counter()
    try:
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    except OSError as fault:
        return {"fault": f"{argv[0]}: {fault}"}
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    timed_out = not poll.poll(timeout * 1000)
    if timed_out:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - started
    os.close(handle)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": seconds,
        "peak": usage.ru_maxrss * 1024,
        "timed_out": timed_out,
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
