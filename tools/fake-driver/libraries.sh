#!/bin/bash
# Builds stand-ins for NVIDIA's optional libraries beside the fake driver, in `libraries/`: name that folder in
# SWATH_CUDA_LIBRARIES. Does nothing where nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/fake-driver
out=${CARGO_TARGET_DIR:-target}/fake-driver
mkdir -p "$out/libraries"
exec 9>"$out/lock"
flock 9
library() { # SOURCE LIBRARY FLAGS...
    local source=$here/$1.cpp library=$out/$2
    local sources=("$source" $here/*.hpp $here/libraries.sh)
    if [ ! -e "$library" ] || [ -n "$(find "${sources[@]}" -newer "$library" -print -quit)" ]; then
        mkdir -p "$(dirname "$library")"
        "${CXX:-g++}" -std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -shared "${@:3}" "$source" -ldl \
            -o "$library.new"
        mv "$library.new" "$library"
    fi
}
library pictures libraries/libnvjpeg.so.13
library pictures libraries/libnvjpeg2k.so.0
library compress libraries/libnvcomp.so.6
library storage libraries/libcufile.so.0
# Older ones: without batches, and with blocking reads only.
library storage without-batch/libcufile.so.0 -DWITHOUT_BATCH
library storage blocking-only/libcufile.so.0 -DWITHOUT_BATCH -DWITHOUT_ASYNC
