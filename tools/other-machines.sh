#!/usr/bin/env bash
# Runs the unit tests as a 32-bit program and as one of a big-endian processor, the Rust code without C under Miri, and the
# code with threads under the thread sanitizer.
#
#   tools/other-machines.sh [i686] [s390x] [miri] [tsan]     all four by default
#
# Debian's packages gcc-i686-linux-gnu, gcc-s390x-linux-gnu (with g++) and qemu-user bring the compilers and the emulator;
# `rustup target add i686-unknown-linux-gnu s390x-unknown-linux-gnu` and `rustup +nightly component add miri rust-src`
# the rest; llvm-symbolizer, where it is installed, names the lines of a data race. What is missing is reported in a line and left out; with CI=true it is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The crates that do not need Python or a network. The engine comes with all codecs, C libraries included.
crates=(-p swath-tiff -p swath-crs -p swath-raster -p swath-codec -p swath-io -p swath)
# QEMU says yes to advice about memory that it does not follow, so mapped writes end in SIGBUS there; and a program of the
# other processor cannot start itself.
unlike_linux=(--skip sink::mapped --skip full_memory_is_an_error)
status=0

missing() { # what, why
    echo "$1: left out, $2" >&2
    [ "${CI:-}" != true ] || status=1
}

# A folder of its own, because other targets would be compiled again after each change of flags.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/other-machines

foreign() { # name, emulator, flags for C
    local name=$1 emulator=$2 flags=$3 target=$1-unknown-linux-gnu variable
    variable=$(tr 'a-z-' 'A-Z_' <<<"$target")
    rustup target list --installed 2>/dev/null | grep -qx "$target" || { missing "$name" "no standard library of Rust"; return; }
    command -v "$name-linux-gnu-gcc" >/dev/null || { missing "$name" "no C compiler"; return; }
    command -v "$emulator" >/dev/null || { missing "$name" "no $emulator"; return; }
    env "CARGO_TARGET_${variable}_LINKER=$name-linux-gnu-gcc" \
        "CARGO_TARGET_${variable}_RUNNER=$emulator -L /usr/$name-linux-gnu" \
        "CC_${target//-/_}=$name-linux-gnu-gcc" "CXX_${target//-/_}=$name-linux-gnu-g++" "CFLAGS_${target//-/_}=$flags" \
        cargo test --release --target "$target" "${crates[@]}" --lib --no-fail-fast -- "${unlike_linux[@]}" || status=1
}

under_miri() { # packages, and filters of tests after --
    local packages=() filters=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do packages+=("$1"); shift; done
    filters=("${@:2}")
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test "${packages[@]}" --lib -- "${filters[@]}" || status=1
}

# Rust with its standard library is built with the sanitizer. The C libraries are not: what they do to memory is unknown to it,
# and no thread shares their state.
thread_sanitizer() {
    local host
    host=$(rustc +nightly -vV 2>/dev/null | sed -n 's/^host: //p')
    [ -n "$host" ] || { missing tsan "no nightly toolchain"; return; }
    [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] || { missing tsan "no rust-src"; return; }
    # Tests fork while threads run, as users do, and ask for more memory than there is; by default the sanitizer ends both.
    TSAN_OPTIONS=die_after_fork=0:allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=thread CARGO_PROFILE_RELEASE_DEBUG=line-tables-only \
        cargo +nightly test -Zbuild-std --release --target "$host" -p swath-io -p swath --lib --no-fail-fast || status=1
}

[ $# -gt 0 ] || set -- i686 s390x miri tsan
for one in "$@"; do
    case $one in
        i686) foreign i686 qemu-i386 "" ;;
        # OpenJPEG does not find out by itself that the processor is big-endian.
        s390x) foreign s390x qemu-s390x -DOPJ_BIG_ENDIAN ;;
        miri)
            cargo +nightly miri --version >/dev/null 2>&1 || { missing Miri "not installed"; continue; }
            # Miri runs no C and no intrinsics of newer processors; these crates have neither.
            under_miri -p swath-tiff -p swath-raster
            # Of these crates the tests that call no C and nothing of Linux that Miri lacks, and that take it no hours: those of the
            # tables of reference systems read all lines, those of most codecs megabytes.
            under_miri -p swath-crs -- unit::
            under_miri -p swath-io -- coalesce::
            under_miri -p swath-codec --no-default-features -- pre:: post::ycbcr codec::ccitt::tests::a_ codec::ccitt::tests::data
            ;;
        tsan) thread_sanitizer ;;
        *) echo "no machine is called $one: there are i686, s390x, miri and tsan" >&2; exit 2 ;;
    esac
done
exit "$status"
