#!/usr/bin/env bash
# The one command on a GPU machine: tests, sanitizer, benchmark against the rivals, results.md and results.json.
#
#   run.sh [--out DIR] [--quick] [--rivals DIR] [--only tests|bench|writes|real|stats|cold|python|zstd|torture]
#
# real reads and writes real rasters; zstd is the benchmark of reading with Zstd files alone; cold times the first calls
# of processes; torture decodes SWATH_CORRUPTED damaged tiles of each codec (default ten million; the tests have fewer)
# and kills SWATH_KILLS writers (default 1000).
# Needs no toolchain and no network. Missing parts (python3, CuPy, rivals, compute-sanitizer) are reported and left out.
# stats times `swath stats`, with SWATH_HUGE=1 on 32 GiB too (it takes 48 GB of $SWATH_BENCH_DIR and some minutes).
# SWATH_RUN_SECONDS is another limit for tests and reading, SWATH_WRITE_SECONDS for writing, which comes after them,
# SWATH_REAL_SECONDS for real rasters, and SWATH_PYTHON_SECONDS for the Python package, which comes last.
# Rasters are made in $SWATH_BENCH_DIR (default /dev/shm/swath-bench) and removed at the end unless SWATH_BENCH_KEEP=1;
# rasters that exist already (with their manifest.json) are used and kept. SWATH_BENCH_SIZE is another width and height.
# Exit status 1 if a test failed, the sanitizer found something, or swath read or wrote a raster wrongly.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$PWD/gpu-results
rivals=/tmp/rivals
quick=()
only=
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift ;;
        --quick) quick=(--quick) ;;
        --rivals) rivals=$2; shift ;;
        --only) only=$2; shift ;;
        *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
codecs=()
contenders=()
case $only in
    '' | tests | bench | writes | real | stats | cold | python | torture) ;;
    zstd) only=bench codecs=(--only zstd) contenders=(--only ceilings,swath,zstd,gdal-gpu,gdal) ;;
    *) echo "--only takes tests, bench, writes, real, stats, cold, python, zstd or torture" >&2; exit 2 ;;
esac

# Seconds for the whole, for the tests, for each tool of the sanitizer and for the making of the rasters.
whole=${SWATH_RUN_SECONDS:-$([ ${#quick[@]} -gt 0 ] && echo 180 || echo 540)}
limits=("$whole" $((whole * 4 / 10)) $((whole / 12)) $((whole / 3)))
writing=${SWATH_WRITE_SECONDS:-$([ ${#quick[@]} -gt 0 ] && echo 150 || echo 480)}
realing=${SWATH_REAL_SECONDS:-$([ ${#quick[@]} -gt 0 ] && echo 150 || echo 480)}
pythoning=${SWATH_PYTHON_SECONDS:-$([ ${#quick[@]} -gt 0 ] && echo 180 || echo 500)}
start=$(date +%s)
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
rm -f "$out"/{tests,corrupted,killed,sanitizer,contenders,writes,real,stats,cold,python,results}.json "$out/results.md" "$out/cogs.tar"
rm -rf "$out/corrupted"
bench_dir=${SWATH_BENCH_DIR:-/dev/shm/swath-bench}
python=$(command -v python3 || true)
[ -n "$python" ] || echo "no python3: the tests run, but there is no benchmark and no report" >&2
[ -d "$rivals" ] || { echo "no rivals in $rivals: see trips.md" >&2; rivals=; }

say() { printf '[%3d s] %s\n' $(($(date +%s) - start)) "$*"; }

# ------------------------------------------------------------------------------------------------------------ unpacking

unpacked=$here/unpacked
mkdir -p "$unpacked" 2>/dev/null && [ -w "$unpacked" ] || unpacked=$(mktemp -d)
unpack() { # archive
    tar -xJf "$1" -C "$unpacked" 2>/dev/null || "$python" -m tarfile -e "$1" "$unpacked"
}
unpack "$here/payload.tar.xz" || exit 2
corpus=()
if [ -f "$here/corpus.tar.xz" ] && unpack "$here/corpus.tar.xz"; then
    corpus=(--corpus "$unpacked/corpus")
fi
bin=$unpacked/bin lib=$unpacked/lib
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONUNBUFFERED=1
[ ! -f "$here/VERSIONS.txt" ] || cp "$here/VERSIONS.txt" "$out/"
"$bin/swath-gpu" devices 2>&1 | tee "$out/devices.txt"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tee -a "$out/devices.txt"

# -------------------------------------------------------------------------------------------------------------- rasters

# They are made while the tests run, which are not timed.
maker=
cleanup() {
    [ -z "$maker" ] || kill "$maker" 2>/dev/null
    [ -n "${SWATH_BENCH_KEEP:-}" ] || rm -rf "$bench_dir"
}
if [ "${only:-bench}" = bench ] && [ -f "$bench_dir/manifest.json" ]; then
    say "using the rasters in $bench_dir"
    true &
    maker=$!
elif [ "${only:-bench}" = bench ] && [ -n "$python" ]; then
    trap cleanup EXIT
    say "making rasters in $bench_dir"
    timeout "${limits[3]}" "$python" "$here/data.py" --dir "$bench_dir" --swath "$bin/swath" \
        ${quick[@]+"${quick[@]}"} ${SWATH_BENCH_SIZE:+--size "$SWATH_BENCH_SIZE"} ${rivals:+--rivals "$rivals"} \
        ${codecs[@]+"${codecs[@]}"} >"$out/data.log" 2>&1 &
    maker=$!
fi

# ---------------------------------------------------------------------------------------------------------------- tests

found=()
sanitize() { # tool, name of the log, seconds, command...
    local tool=$1 log=$out/$2.log seconds=$3 sanitizer began status summary bad
    shift 3
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$sanitizer" ] || { say "no compute-sanitizer: left out"; return; }
    began=$(date +%s)
    timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 86 "$@" >"$log" 2>&1
    status=$?
    summary=$(grep -E '(ERROR|RACECHECK) SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')
    bad=true
    case $status in
        0) bad=false ;;
        124 | 137) bad=false summary="not finished in $seconds s" ;;
        *) summary="${summary:-no summary}, exit status $status" ;;
    esac
    tool=$(basename "$log" .log)
    say "compute-sanitizer $tool: $summary"
    found+=("{\"tool\": \"$tool\", \"summary\": \"${summary//\"/}\", \"found\": $bad, \"seconds\": $(($(date +%s) - began))}")
    (IFS=,; echo "[${found[*]}]") >"$out/sanitizer.json"
}

tests_status=0
if [ "${only:-tests}" = tests ]; then
    say "tests"
    timeout -k 5 "${limits[1]}" "$bin/swath-gpu" test --json "$out/tests.json" ${corpus[@]+"${corpus[@]}"} \
        >"$out/tests.log" 2>&1
    tests_status=$?
    tail -n 15 "$out/tests.log"
    say "tests: exit status $tests_status"
    # The report needs the exit status too, and a result even if the tests died.
    [ -z "$python" ] || "$python" - "$out" "$tests_status" <<'PY'
import json, pathlib, sys
out, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
try:
    tests = json.loads((out / "tests.json").read_text())
except (OSError, ValueError):
    log = (out / "tests.log").read_text(errors="replace")[-400:]
    how = "timed out" if status in (124, 137) else "left no result"
    failure = {"name": f"swath-gpu test {how}", "cases": 0, "failed": 1, "first_failures": [" ".join(log.split())]}
    tests = {"ok": False, "groups": [failure]}
tests["exit"] = status
(out / "tests.json").write_text(json.dumps(tests, indent=1) + "\n")
PY
    for tool in memcheck synccheck; do
        sanitize "$tool" "$tool" "${limits[2]}" "$bin/swath-gpu" test --small --json "$out/$tool.json"
    done
fi

# A tile that hangs the device hangs the program, and the time limit ends it.
torture() { # name, arguments of swath-gpu...
    local name=$1 status
    shift
    say "$name"
    timeout -k 5 "${limits[0]}" "$bin/swath-gpu" "$@" --json "$out/$name.json" 2>&1 | tee "$out/$name.log"
    status=${PIPESTATUS[0]}
    [ -f "$out/$name.json" ] || echo "{\"error\": \"exit status $status, see $name.log\"}" >"$out/$name.json"
    [ "$status" -eq 0 ] || tests_status=$status
    say "$name: exit status $status"
}
if [ "$only" = torture ]; then
    torture corrupted corrupt --count "${SWATH_CORRUPTED:-10000000}" --keep "$out/corrupted"
    torture killed kill --count "${SWATH_KILLS:-1000}" --dir "$bench_dir-kill"
fi

# ------------------------------------------------------------------------------------------------------------ benchmark

bench_status=0
if [ -n "$maker" ]; then
    wait "$maker"
    made=$?
    maker=
    say "rasters: exit status $made"
    if [ $made -eq 0 ]; then
        "$python" "$here/rivals.py" run --manifest "$bench_dir/manifest.json" --out "$out/contenders.json" \
            --logs "$out/logs" --bin "$bin" --lib "$lib" ${rivals:+--rivals "$rivals"} \
            ${contenders[@]+"${contenders[@]}"} --deadline $((start + limits[0] - 15))
        bench_status=$?
        say "benchmark: exit status $bench_status"
    else
        tail -n 5 "$out/data.log"
        bench_status=1
    fi
fi
writes_status=0
if [ "${only:-writes}" = writes ] && [ -n "$python" ]; then
    say "writing"
    timeout -k 10 $((writing + 30)) "$python" "$here/writes.py" run --dir "$bench_dir-writes" \
        --out "$out/writes.json" --logs "$out/logs" --cogs "$out/cogs.tar" --bin "$bin" --lib "$lib" \
        ${quick[@]+"${quick[@]}"} ${SWATH_BENCH_SIZE:+--size "$SWATH_BENCH_SIZE"} ${rivals:+--rivals "$rivals"} \
        --deadline $(($(date +%s) + writing - 15))
    writes_status=$?
    # It unmounts by itself unless it had to be killed.
    umount "$bench_dir-writes/huge" 2>/dev/null
    say "writing: exit status $writes_status"
fi

# --------------------------------------------------------------------------------------------------------- real rasters

real_status=0
if [ "${only:-real}" = real ] && [ -n "$python" ] && [ -d "$here/real" ]; then
    say "real rasters"
    PYTHONPATH=$unpacked/python${PYTHONPATH:+:$PYTHONPATH} timeout -k 10 $((realing + 30)) "$python" "$here/real.py" \
        --dir "$bench_dir-real" --rasters "$here/real" --out "$out/real.json" \
        ${quick[@]+--size 8192} ${rivals:+--rivals "$rivals"} --deadline $(($(date +%s) + realing - 30)) 2>&1 |
        tee "$out/real.log"
    real_status=${PIPESTATUS[0]}
    umount "$bench_dir-real/huge" 2>/dev/null
    rm -rf "$bench_dir-real"
    say "real rasters: exit status $real_status"
fi

# ----------------------------------------------------------------------------------------------------------- statistics

stats_status=0
if [ "${only:-stats}" = stats ] && [ -n "$python" ]; then
    say "statistics"
    stats_seconds=$([ -n "${SWATH_HUGE:-}" ] && echo 600 || echo 180)
    PYTHONPATH=$unpacked/python${PYTHONPATH:+:$PYTHONPATH} timeout -k 5 "$stats_seconds" \
        "$python" "$here/stats.py" --swath "$bin/swath" --dir "$bench_dir-stats" --out "$out/stats.json" \
        ${quick[@]+--size 8192} ${SWATH_HUGE:+--huge} 2>&1 | tee "$out/stats.log"
    stats_status=${PIPESTATUS[0]}
    rm -rf "$bench_dir-stats"
    say "statistics: exit status $stats_status"
fi

# ----------------------------------------------------------------------------------------------------------- cold start

# After everything that loads the processors, because these are times of single calls.
cold_status=0
if [ "${only:-cold}" = cold ]; then
    say "cold start"
    timeout -k 5 180 "$bin/swath-gpu" cold --dir "$bench_dir-cold" --json "$out/cold.json" >"$out/cold.log"
    cold_status=$?
    [ -f "$out/cold.json" ] || echo "{\"error\": \"exit status $cold_status, see cold.log\"}" >"$out/cold.json"
    rm -rf "$bench_dir-cold"
    say "cold start: exit status $cold_status"
fi

# --------------------------------------------------------------------------------------------------------- the package

python_status=0
if [ "${only:-python}" = python ] && [ -n "$python" ]; then
    say "the Python package"
    # Its own xarray and dask go before the machine's, the rivals behind them.
    export PYTHONPATH=$unpacked/python${PYTHONPATH:+:$PYTHONPATH}
    package=("$python" "$here/python_gpu.py" check --dir "$bench_dir-python" --lib "$lib" ${rivals:+--rivals "$rivals"})
    timeout -k 10 "$pythoning" "${package[@]}" --out "$out/python.json" ${quick[@]+--size 8192} \
        --deadline $(($(date +%s) + pythoning * 2 / 3)) 2>&1 | tee "$out/python.log"
    python_status=${PIPESTATUS[0]}
    say "the Python package: exit status $python_status"
    sanitize memcheck memcheck-python $((pythoning / 3)) "${package[@]}" --small --out "$out/python-small.json"
    rm -rf "$bench_dir-python"
fi
[ -n "$python" ] || exit "$tests_status"
"$python" "$here/report.py" --dir "$out" --versions "$here/VERSIONS.txt"
report_status=$?
say "results in $out"
[ $report_status -eq 0 ] && [ $bench_status -eq 0 ] && [ $writes_status -eq 0 ] && [ $real_status -eq 0 ] &&
    [ $stats_status -eq 0 ] && [ $cold_status -eq 0 ] && [ $python_status -eq 0 ] || exit 1
