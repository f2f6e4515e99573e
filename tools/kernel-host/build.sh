#!/bin/sh
# Builds the program that runs kernels on the host, three times (plain; address and undefined-behaviour sanitizers; thread
# sanitizer), into target/kernel-host/. Does nothing if the programs are newer than every source.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
kernels=$root/crates/swath-cuda/kernels
here=$root/tools/kernel-host
out=${CARGO_TARGET_DIR:-$root/target}/kernel-host
mkdir -p "$out"

# One build at a time: several test programs may start it at once.
exec 9>"$out/lock"
flock 9

# Every entry point, so that a new kernel needs no line here.
list=$(cd "$kernels" && for entry in */*.cu; do echo "#include \"$entry\""; done)
if [ "$list" != "$(cat "$out/entries.inc" 2>/dev/null)" ]; then
    echo "$list" >"$out/entries.inc"
fi

build() {
    program=$out/$1
    shift
    if [ -x "$program" ] && [ -z "$(find "$kernels" "$here" "$out/entries.inc" \
        \( -name '*.cuh' -o -name '*.cu' -o -name '*.hpp' -o -name '*.cpp' -o -name '*.inc' -o -name build.sh \) \
        -newer "$program" -print -quit)" ]; then
        return
    fi
    # Kernels access bytes as words of every size.
    "${CXX:-g++}" -std=c++17 -ffp-contract=off -g1 -fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas -pthread \
        -I "$kernels" -I "$out" "$@" -o "$program.new" "$here/main.cpp"
    mv "$program.new" "$program"
}

build plain -O2 &
plain=$!
build asan -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer &
asan=$!
wait $plain
wait $asan
build tsan -O1 -fsanitize=thread
