#!/usr/bin/env python3
"""Builds the wheel for Linux, checks which systems it runs on, and tries it where nothing but NumPy is installed.

Run by `make wheel`, and by `make sdist` for the source distribution. Zig compiles the C libraries and links against an
old glibc, so the wheel also runs on systems that are older than the one it is built on.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# RHEL 8 and everything since: glibc 2.28.
GLIBC = (2, 28)
MOST_BYTES = 15_000_000


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command, shows its messages and returns its output."""
    return subprocess.run(command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE).stdout


def maturin(*arguments: str | Path) -> None:
    """Runs the maturin of this environment, which finds its zig."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([bin_folder / "maturin", *arguments], cwd=ROOT, env=environment, check=True)


def newest(folder: Path, pattern: str) -> Path:
    """Returns the file that was made last."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)


def build(out: Path) -> Path:
    """Builds the wheel and returns its path."""
    target = f"{os.uname().machine}-unknown-linux-gnu"
    policy = f"manylinux_{GLIBC[0]}_{GLIBC[1]}"
    maturin("build", "--release", "--locked", "--strip", "--zig", "--target", target, "--compatibility", policy,
            "--out", out)  # fmt: skip
    return newest(out, "swath-*.whl")


def build_from_sdist(out: Path, scratch: Path) -> Path:
    """Makes the source distribution, and a wheel of its files alone, which is returned."""
    maturin("sdist", "--out", out)
    # The dependencies that the checkout has built already are used again.
    os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))
    os.environ["MATURIN_PEP517_ARGS"] = "--features shared-build"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--wheel-dir", scratch, newest(out, "swath-*.tar.gz"))  # fmt: skip
    return newest(scratch, "swath-*.whl")


def check(wheel: Path) -> None:
    """Fails where the wheel needs a newer glibc than promised, or is too large."""
    # auditwheel wraps its lines, and names the policy that the symbols allow.
    report = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_(\d+)_(\d+)_\w+"', report)
    if not found or tuple(map(int, found.groups())) > GLIBC:
        raise SystemExit(f"{wheel.name} does not run on glibc {GLIBC[0]}.{GLIBC[1]}: {report}")
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{wheel.name} has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}")
    print(f"{wheel.name}: glibc {'.'.join(found.groups())} or newer, {size / 1e6:.1f} MB")


def smoke_test(wheel: Path) -> None:
    """Installs the wheel and NumPy into a new environment, and uses it outside of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        pins = ROOT / "tools" / "requirements-demo.txt"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
            "--constraint", pins, wheel)  # fmt: skip
        # `-I`: neither the folder of the script nor variables of this environment reach the interpreter.
        print(run(python, "-I", ROOT / "tools" / "smoke_test.py", cwd=Path(folder)), end="")


def main() -> None:
    """Makes a wheel or the source distribution, and tries it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for what is made")
    parser.add_argument("--sdist", action="store_true", help="make the source distribution, and try a wheel of it")
    arguments = parser.parse_args()
    if arguments.sdist:
        with tempfile.TemporaryDirectory() as scratch:
            smoke_test(build_from_sdist(arguments.out.resolve(), Path(scratch)))
    else:
        wheel = build(arguments.out.resolve())
        check(wheel)
        smoke_test(wheel)


if __name__ == "__main__":
    main()
