#!/usr/bin/env bash
# Checks that the engine, the command and the Python module compile for other systems; `make systems` runs it. Zig
# compiles the C libraries. A target that rustup has not installed is skipped with one line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

installed=$(rustup target list --installed)
for target in aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-gnu; do
    if ! grep -qx "$target" <<<"$installed"; then
        echo "systems: $target skipped: rustup target add $target"
        continue
    fi
    # The C libraries are only compiled to see that they do: not optimised.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo-zigbuild check --quiet --release --locked --target "$target" \
        --target-dir "${CARGO_TARGET_DIR:-target}/systems" -p swath-cli -p swath-python
    echo "systems: $target compiles"
done
