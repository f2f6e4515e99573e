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
for pair in pictures:libnvjpeg.so.13 pictures:libnvjpeg2k.so.0 storage:libcufile.so.0 compress:libnvcomp.so.6; do
    source=$here/${pair%%:*}.cpp
    library=$out/libraries/${pair#*:}
    sources=("$source" $here/*.hpp $here/libraries.sh)
    if [ ! -e "$library" ] || [ -n "$(find "${sources[@]}" -newer "$library" -print -quit)" ]; then
        "${CXX:-g++}" -std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -shared "$source" -ldl \
            -o "$library.new"
        mv "$library.new" "$library"
    fi
done
