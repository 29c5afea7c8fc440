#!/bin/bash
# Tests and measurements on a machine with a GPU, in one call of under ten minutes.
#
# usage: run.sh OUT [DATA]
#
# Lies in a bundle that `cargo xtask gpu` made, beside the release binary and the test programs: nothing is built here, so
# the machine needs no Rust. OUT receives a log of each test program, results.jsonl (one JSON object a measurement) and
# summary.txt. DATA is a folder with CIFAR-10; without it training is measured on random data alone.
# PyTorch is measured beside it where `python3` has it. CUDA's libraries are found as `pip` installs them.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
data=${2:-}
mkdir -p "$out"
deadline=$((SECONDS + ${TOWERS_GPU_SECONDS:-560}))
left() { echo $((deadline - SECONDS)); }

# The libraries of CUDA's wheels, and the one name under which NCCL is looked for.
nvidia=$(python3 -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null)
if [ -n "$nvidia" ]; then
    links=$(mktemp -d)
    nccl=$(ls "$nvidia"/nccl/lib/libnccl.so.2 2>/dev/null)
    [ -n "$nccl" ] && ln -s "$nccl" "$links/libnccl.so"
    LD_LIBRARY_PATH=$(printf '%s:' "$nvidia"/*/lib)$links:${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
fi
export TOWERS_CACHE_DIR="$out/cache" TOWERS_REQUIRE_CUDA=1

summary="$out/summary.txt"
: >"$summary"
say() { echo "$*" | tee -a "$summary"; }

say "== machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$summary"
"$here/towers" devices 2>&1 | tee -a "$summary"

say "== tests"
failed=0
for program in "$here"/tests/*; do
    name=$(basename "$program")
    [ "$(left)" -lt 120 ] && say "$name: SKIPPED: no time left" && continue
    timeout 150 "$program" --test-threads 2 >"$out/$name.log" 2>&1
    status=$?
    verdict=$(grep -h '^test result' "$out/$name.log" | tail -1)
    say "$name: exit $status; ${verdict:-no result}"
    if [ $status -ne 0 ]; then
        failed=1
        grep -hE '^test .*FAILED|panicked at|^error' -A2 "$out/$name.log" | head -20 | tee -a "$summary"
    fi
done

if command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 240 ]; then
    say "== compute-sanitizer"
    for tool in memcheck racecheck; do
        timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$here/towers" bench --device cuda --recipe keras-cnn \
            --batch 32 --seconds 0 --repeats 1 >"$out/sanitizer-$tool.log" 2>&1
        say "$tool: exit $? $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/sanitizer-$tool.log" | tail -1)"
    done
fi

say "== speed"
results="$out/results.jsonl"
: >"$results"
measure() { # a label, then a command that prints one JSON object
    [ "$(left)" -lt 25 ] && say "$1: SKIPPED: no time left" && return
    local label=$1 line
    shift
    line=$(timeout 90 "$@" 2>"$out/last-error.log" | grep '^{' | tail -1)
    if [ -z "$line" ]; then
        say "$label: failed: $(tail -2 "$out/last-error.log" | tr '\n' ' ')"
        return
    fi
    echo "$line" >>"$results"
    say "$label: $(echo "$line" | sed -E 's/.*"images_per_s": ?([0-9.]+).*/\1/') images/s"
}
for cell in "minigooglenet minigooglenet 64 bf16" "minigooglenet minigooglenet 1024 bf16" "keras-cnn keras_cnn 128 bf16" \
    "minigooglenet minigooglenet 64 fp32" "minigooglenet minigooglenet 64 tf32" "keras-cnn keras_cnn 128 fp32" \
    "minigooglenet minigooglenet 1024 fp16"; do
    read -r recipe model batch precision <<<"$cell"
    measure "towers $model $batch $precision" "$here/towers" bench --device cuda --recipe "$recipe" --batch "$batch" \
        --precision "$precision" --seconds 2 --json
    for way in graph compile eager; do
        measure "torch/$way $model $batch $precision" python3 "$here/peer_torch.py" "$model" --way $way --batch "$batch" \
            --precision "$precision" --seconds 2
    done
done

if [ -n "$data" ]; then
    say "== training on $data"
    for precision in bf16 fp32; do
        [ "$(left)" -lt 40 ] && say "SKIPPED: no time left" && break
        timeout $(($(left) - 10)) "$here/towers" train --device cuda --precision $precision --epochs 3 --data-dir "$data" \
            --offline --no-progress --output "$out/run-$precision" 2>&1 | tee -a "$summary"
    done
    measure "torch/graph epoch 64 bf16" python3 "$here/peer_torch.py" minigooglenet --way graph --precision bf16 --epoch
fi
say "== done after $SECONDS s"
exit $failed
