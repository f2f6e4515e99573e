#!/bin/sh
# Prints the Python that the virtual environment is made with: the newest of those the pinned wheels exist for.
# A name on PATH is not enough: version managers leave shims there that answer "not found", so each one is started.
set -eu

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1
}

for name in python3.13 python3.12; do
    if usable "$name"; then
        command -v "$name"
        exit 0
    fi
    for found in "$HOME/.pyenv/versions/${name#python}".*/bin/python3; do
        if usable "$found"; then
            echo "$found"
            exit 0
        fi
    done
done
for name in python3.11 python3; do
    if usable "$name"; then
        command -v "$name"
        exit 0
    fi
done
echo "no Python 3.11 to 3.13 with the venv module was found; name one with PYTHON=..." >&2
exit 1
