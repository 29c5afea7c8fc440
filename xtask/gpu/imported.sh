#!/bin/bash
# Imported networks on a machine with a GPU: each is exported from torchvision, checked op by op against the CPU, and timed
# beside PyTorch.
#
# usage: imported.sh OUT [NAME...]
#
# Lies in a bundle of `cargo xtask gpu`, as run.sh does, and needs `python3` with torchvision and onnx. OUT receives
# imported.jsonl (one JSON object a measurement), imported.txt (a summary) and logs. BATCHES (64) are the batches in training,
# TOWERS_GPU_SECONDS (400) is all the time there is. SELFTEST=0 leaves out the self-test and the conformance tests, which take three
# minutes, CHECK=0 the checks of the networks, TORCH=0 PyTorch, whose compiler takes up to a minute a network.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
names=${*:-mobilenet_v2 resnet50 efficientnet_b0 convnext_tiny resnext50_32x4d mobilenet_v3_large shufflenet_v2_x1_0}
deadline=$((SECONDS + ${TOWERS_GPU_SECONDS:-400}))
left() { echo $((deadline - SECONDS)); }
nvidia=$(python3 -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null)
if [ -n "$nvidia" ]; then
    LD_LIBRARY_PATH=$(printf '%s:' "$nvidia"/*/lib)${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
fi
export TOWERS_CACHE_DIR=/tmp/towers-cache TOWERS_REQUIRE_CUDA=1 TOWERS_GOLDEN="$here/golden" CXX=no-compiler-here
networks="$here/imported_networks.py"
work=/tmp/imported
mkdir -p $work
say() { echo "[$SECONDS s] $*" | tee -a "$out/imported.txt"; }

measure() { # a label, then a command that prints one JSON object
    [ "$(left)" -lt 15 ] && say "$1: SKIPPED: no time left" && return
    local label=$1 line
    shift
    line=$(timeout 60 "$@" 2>$work/error.log | grep '^{' | tail -1)
    if [ -z "$line" ]; then
        say "$label: failed: $(tail -3 $work/error.log | tr '\n' ' ' | cut -c1-600)"
    else
        echo "${line/main_graph/${name:-main_graph}}" >>"$out/imported.jsonl"
        say "$label: $(echo "$line" | sed -E 's/.*"images_per_s": ?([0-9.]+).*/\1/') images/s$(
            echo "$line" | grep -o '"not_recorded":"[^"]*"' | sed 's/^/; /')"
    fi
}
ours() { # network, mode, batch, flags
    local name=$1 mode=$2 batch=$3
    shift 3
    measure "towers $name $mode $batch $*" "$here/towers" bench --device cuda --precision bf16 --model $work/$name.onnx \
        --mode $mode --batch $batch --seconds 1 --json "$@"
}
torch() { # network, mode, batch, way
    [ "${TORCH:-1}" = 1 ] && measure "torch $*" python3 "$networks" torch "$1" "$2" "$3" 1 "$4"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee -a "$out/imported.txt"
python3 "$networks" onnx $work $names >$work/export.log 2>&1 &
export_pid=$!
if [ "${SELFTEST:-1}" = 1 ]; then
    timeout 120 "$here/towers" selftest --device cuda --output "$out/selftest.md" >"$out/selftest.log" 2>&1
    say "selftest: exit $?; $(tail -1 "$out/selftest.log")"
    cd "$here/tests" || exit 1
    for test in tensor-cuda-conformance tensor-cuda-libraries layers-* models-*; do
        timeout $((SECONDS < 150 ? 150 - SECONDS : 10)) ./$test --skip emulated --test-threads 12 --show-output >"$out/$test.log" 2>&1
        status=$?
        say "$test: exit $status; $(grep -h '^test result' "$out/$test.log" | tail -1)"
        [ $status -ne 0 ] && grep -hE '^test .*FAILED|panicked at|^error' -A2 "$out/$test.log" | head -20 | tee -a "$out/imported.txt"
    done
    cd "$out" || exit 1
fi
wait $export_pid
say "export: exit $?; $(ls $work/*.onnx | wc -l) files; $(tail -1 $work/export.log | cut -c1-200)"
if [ "${CHECK:-1}" = 1 ]; then
    for precision in fp32 bf16; do
        for name in $names; do
            [ "$(left)" -lt 60 ] && say "check $name $precision: SKIPPED: no time left" && continue
            timeout 60 "$here/towers" train --dataset synthetic --model $work/$name.onnx --limit-train 64 --limit-test 32 --epochs 1 \
                --batch-size 16 --device cuda --precision $precision --check-device always --no-progress \
                --output $work/run-$name-$precision >"$out/check-$name-$precision.log" 2>&1
            say "check $name $precision: exit $?; $(tail -2 "$out/check-$name-$precision.log" | tr '\n' ' ' | cut -c1-400)"
        done
    done
fi
say "== speed"
for batch in ${BATCHES:-64}; do
    for name in $names; do ours $name train $batch; done
done
for name in $names; do
    TOWERS_PROFILE="$out/profile-$name.txt" CUDA_INJECTION64_PATH="$here/time_by_kernel.so" timeout 60 "$here/towers" bench \
        --device cuda --precision bf16 --model $work/$name.onnx --batch 64 --seconds 1 --repeats 1 >"$out/engine-$name.txt" 2>&1
    say "profile $name: exit $?"
done
for name in $names; do
    ours $name train 64 --kernels own
    ours $name train 64 --kernels library
    ours $name infer 64
done
for name in $names; do
    for batch in ${BATCHES:-64}; do torch $name train $batch compiled-graph; done
    torch $name infer 64 graph
done
say "== done"
