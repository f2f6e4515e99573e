"""Starts a command that may have at most THREADS threads besides its first: `python limited.py THREADS COMMAND...`.

The system does not count the threads of root. So the command gets another real user, who has nothing else running, and
loses the capabilities that lift the limit. It still finds its files: root's rights to them are the effective user's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

PR_CAPBSET_DROP = 24
CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24


def main() -> None:
    threads, command = int(sys.argv[1]), sys.argv[2:]
    if os.getuid() == 0:
        for capability in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (1 + threads, 1 + threads))
    if os.getuid() == 0:
        os.setresuid(100_000 + os.getpid() % 1_000_000, 0, 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
