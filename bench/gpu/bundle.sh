#!/usr/bin/env bash
# Makes the folder that goes to a GPU machine: one that has no toolchain and no network and takes 60 MiB a trip.
#
#   bundle.sh [--out DIR] [--no-build] [--no-corpus]   the bundle (default target/gpu-bundle) with its run.sh
#   bundle.sh --real [...]                             the same with real rasters in place of the corpus
#   bundle.sh --rivals DIR                             the rivals' own folder, with an install.sh (see trips.md)
#   bundle.sh --rivals2 DIR                            the same with xrspatial, for the write benchmark
#
# Environment: PYTHON (with pip and maturin), CARGO, CARGO_TARGET_DIR, SHARED_CORPUS (left out if it is missing),
# SHARED_RASTERS, SWATH_BIN and SWATH_GPU_BIN (programs to take instead of building them), SWATH_WHEEL (likewise).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
python=${PYTHON:-python3}
limit=$((60 << 20))
out=$target/gpu-bundle
rivals=
which=rivals
build=yes
real=
corpus=${SHARED_CORPUS:-../shared/corpus}
rasters=${SHARED_RASTERS:-../shared/real}
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift ;;
        --rivals | --rivals2) which=${1#--} rivals=$2; shift ;;
        --no-build) build= ;;
        --no-corpus) corpus= ;;
        --real) corpus= real=yes ;;
        *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done

# The newest libraries that NVIDIA has for CUDA 13; nvTIFF 0.8 opens libnvcomp.so.5 and nothing newer.
libraries=(nvidia-libnvcomp-cu13==6.0.0.12 nvidia-nvjpeg2k-cu13==0.11.0.51)
libraries+=(nvidia-nvjpeg==13.0.1.86 nvidia-cufile==1.15.1.6)
rival_libraries=(nvidia-nvtiff-cu13==0.8.0.82 nvidia-libnvcomp-cu13==5.3.0.16)
rival_packages=(rasterio==1.5.2 affine==3.0.1 attrs==26.1.0 certifi==2026.10.18 click==8.5.1 pyparsing==3.3.3)
# What xrspatial's GeoTIFF writer imports, host codecs included; without scipy it only has no cubic overviews.
rival2_packages=(xarray-spatial==0.10.20 numba==0.68.1 llvmlite==0.50.0 xarray==2026.9.0 pandas==3.1.1)
rival2_packages+=(python-dateutil==4.0.0 tzdata==2026.6 packaging==26.3 urllib3==2.8.0 deflate==0.9.0 zstandard==0.25.0)
# Packages for the tests of the Python package on the GPU machine, which has CuPy and torch but neither xarray nor dask.
python_packages=(xarray==2026.9.0 pandas==3.1.1 python-dateutil==4.0.0 tzdata==2026.6 packaging==26.3 dask==2026.8.0)
python_packages+=(fsspec==2026.9.0 cloudpickle==3.1.2 toolz==1.2.0 partd==1.4.2 locket==1.0.0 pyyaml==6.0.3)
python_packages+=(distributed==2026.8.0 msgpack==1.2.4 tornado==6.6.1 sortedcontainers==2.4.0 tblib==3.2.2 zict==3.0.0)
python_packages+=(click==8.5.1 jinja2==3.1.6 markupsafe==3.0.4 psutil==7.2.2 urllib3==2.8.0)
# The GPU machine's Python.
for_machine=(--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none)
for_machine+=(--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64)

# Wheels for the GPU machine's Python, fetched once; one folder for each set, so that it can have two versions of a library.
fetch() { # folder, requirements...
    local folder=$1
    shift
    if [ "$(cat "$folder/.pins" 2>/dev/null)" != "$*" ]; then
        rm -rf "$folder"
        "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
            "${for_machine[@]}" --dest "$folder" "$@"
        echo "$*" >"$folder/.pins"
    fi
}

# Takes only the named libraries and their licences out of wheels.
extract() { # flat | whole, folder of wheels, destination, names...
    "$python" - "$@" <<'PY'
import pathlib, sys, zipfile
how, folder, destination, *names = sys.argv[1:]
missing = set(names)
for wheel in sorted(pathlib.Path(folder).glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            base = member.rsplit("/", 1)[-1]
            licence = base.lower().startswith("license") and ".dist-info/" in member
            if base not in names and not licence:
                continue
            place = pathlib.PurePath(member)
            if licence:
                place = pathlib.PurePath("licences", wheel.name.split("-")[0] + ".txt")
            elif how == "flat":
                place = pathlib.PurePath(base)
            path = pathlib.Path(destination, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))
            missing.discard(base)
if missing:
    raise SystemExit(f"no wheel in {folder} holds {', '.join(sorted(missing))}")
PY
}

# Wheels as a folder that PYTHONPATH may name, without their tests.
install() { # destination, wheels...
    local to=$1
    shift
    "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile \
        --only-binary :all: "${for_machine[@]}" --target "$to" "$@"
    find "$to" -type d -name tests -prune -exec rm -rf {} +
}

pack() { # folder, archive, members...
    local folder=$1 archive=$2
    shift 2
    # The programs and the Python module share most of their code: a window that spans both finds it.
    tar -C "$folder" --owner=0 --group=0 --sort=name -cf - "$@" | xz -T1 --lzma2=preset=9,dict=256MiB >"$archive"
}

finish() { # folder
    local size
    size=$(du -sb --apparent-size "$1" | cut -f1)
    ls -l "$1"
    printf '%s: %d.%d MiB of %d\n' "$1" $((size >> 20)) $(((size & 1048575) * 10 >> 20)) $((limit >> 20))
    if [ "$size" -gt "$limit" ]; then
        echo "too large for one trip" >&2
        exit 1
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$rivals" ]; then
    if [ "$which" = rivals ]; then
        fetch "$target/wheels/rival-packages" "${rival_packages[@]}"
        fetch "$target/wheels/rival-libraries" "${rival_libraries[@]}"
        wheels=$target/wheels/rival-packages
    else
        fetch "$target/wheels/rival2-packages" "${rival2_packages[@]}"
        wheels=$target/wheels/rival2-packages
    fi
    install "$work/rivals" "$wheels"/*.whl
    if [ "$which" = rivals ]; then
        extract whole "$target/wheels/rival-libraries" "$work/rivals" libnvtiff.so.0 libnvcomp.so.5
        says='import rasterio; print("rasterio", rasterio.__version__, "GDAL", rasterio.__gdal_version__)'
    else
        # Symbols are a third of it.
        strip "$work/rivals/llvmlite/binding/libllvmlite.so"
        says='import numba, pandas, xarray; print("numba", numba.__version__, "xarray", xarray.__version__)'
    fi
    rm -rf "$rivals"
    mkdir -p "$rivals"
    pack "$work/rivals" "$rivals/$which.tar.xz" .
    cat >"$rivals/install.sh" <<SH
#!/usr/bin/env bash
# Puts the rivals where run.sh looks for them: install.sh [FOLDER], by default /tmp/rivals.
set -euo pipefail
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
to=\${1:-/tmp/rivals}
mkdir -p "\$to"
tar -xJf "\$here/$which.tar.xz" -C "\$to" || python3 -m tarfile -e "\$here/$which.tar.xz" "\$to"
PYTHONPATH=\$to python3 -c '$says'
SH
    chmod +x "$rivals/install.sh"
    finish "$rivals"
    exit
fi

if [ -n "$build" ]; then
    # Together and with shared-build, so that the build of `make test` serves here too.
    if [ -z "${SWATH_BIN:-}" ] || [ -z "${SWATH_GPU_BIN:-}" ]; then
        ${CARGO:-cargo} build --release -p swath-cli -p swath-gpu-worker
    fi
    if [ -z "${SWATH_WHEEL:-}" ]; then
        rm -rf "$target/wheels/swath"
        "$python" -m maturin build --release --locked --features shared-build -o "$target/wheels/swath"
    fi
fi
wheel=${SWATH_WHEEL:-$(ls -t "$target"/wheels/swath/*.whl | head -n 1)}
mkdir -p "$work/bin" "$work/lib"
cp "${SWATH_BIN:-$target/release/swath}" "$work/bin/swath"
cp "${SWATH_GPU_BIN:-$target/release/swath-gpu}" "$work/bin/swath-gpu"
for program in "$work"/bin/*; do
    # A script may replace a program.
    strip "$program" 2>/dev/null || true
done
fetch "$target/wheels/libraries" "${libraries[@]}"
extract flat "$target/wheels/libraries" "$work/lib" libnvcomp.so.6 libnvjpeg2k.so.0 libnvjpeg.so.13 libcufile.so.0
fetch "$target/wheels/python-packages" "${python_packages[@]}"
install "$work/python" "$target"/wheels/python-packages/*.whl
# The machine's libc may be older than the tag that maturin gives the wheel, so it is unpacked, not installed.
"$python" -m zipfile -e "$wheel" "$work/python"
find "$work/python" -name '*.so' -exec strip {} +

rm -rf "$out"
mkdir -p "$out"
pack "$work" "$out/payload.tar.xz" bin lib python
if [ -n "$corpus" ] && [ -d "$corpus" ]; then
    ln -s "$(cd "$corpus" && pwd)" "$work/corpus"
    tar -C "$work" --owner=0 --group=0 --sort=name -chf - corpus | xz -6 -T0 >"$out/corpus.tar.xz"
else
    echo "no corpus in the bundle" >&2
fi
cp "$here"/{run.sh,data.py,rivals.py,writes.py,real.py,stats.py,python_gpu.py,report.py,README.md,trips.md} "$out/"
# Both would be too large for one trip.
if [ -n "$real" ]; then
    mkdir "$out/real"
    cp "$rasters"/*.tif "$out/real/"
fi
# Files that python_gpu.py runs beside its own checks: the matrix of the tests, and the examples of the documents.
cp tests/python/{matrix,documented}.py "$out/"
mkdir -p "$out/documents/docs"
cp README.md "$out/documents/"
cp docs/*.md "$out/documents/docs/"
chmod +x "$out/run.sh"
glibc=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
changed=$([ -z "$(git status --porcelain 2>/dev/null)" ] || echo ", with changes")
{
    echo "swath: $("$work/bin/swath" --version 2>/dev/null || echo unknown), commit $(git rev-parse HEAD)$changed"
    echo "built: $(date -u +%Y-%m-%dT%H:%MZ), $(rustc --version 2>/dev/null || echo 'no rustc'), glibc $glibc"
    echo "bundled: $(basename "$wheel") ${libraries[*]}"
    echo "for Python: ${python_packages[*]}"
    echo "rivals meant: ${rival_packages[0]} ${rival_libraries[*]} ${rival2_packages[0]}"
} >"$out/VERSIONS.txt"
finish "$out"
