#!/bin/bash
# Tests and measurements on a machine with a GPU, in one call of under ten minutes.
#
# usage: run.sh OUT [DATA]
#
# Lies in a bundle that `cargo xtask gpu` made, beside the release binary and the test programs: nothing is built here, so
# the machine needs no Rust. OUT receives a log of each test program, results.jsonl (one JSON object a measurement), the
# algorithms that were chosen (engine-*.txt), the time by kernel (profile-*.txt), the last launches (timeline-*.txt) and summary.txt. DATA is a folder with
# CIFAR-10; without it training is measured on random data alone. PyTorch is measured beside it where `python3` has it. CUDA's
# libraries are found as `pip` installs them. TOWERS_GPU_SECONDS (560) is all the time there is: what is told most by comes
# first, and what finds no time left says so.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
data=${2:-}
mkdir -p "$out"
out=$(cd "$out" && pwd)
deadline=$((SECONDS + ${TOWERS_GPU_SECONDS:-560}))
left() { echo $((deadline - SECONDS)); }

# The libraries of CUDA's wheels.
nvidia=$(python3 -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null)
if [ -n "$nvidia" ]; then
    LD_LIBRARY_PATH=$(printf '%s:' "$nvidia"/*/lib)${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
fi
export TOWERS_CACHE_DIR="$out/cache" TOWERS_REQUIRE_CUDA=1 TOWERS_GOLDEN="$here/golden"
# The emulated GPU has been tested elsewhere: without a compiler it takes no time here.
export CXX=no-compiler-here

summary="$out/summary.txt"
results="$out/results.jsonl"
: >"$summary"
: >"$results"
emulating='--skip engine::installed --skip engine::own --skip engine::sliding --skip engine::small_window'
failed=0
say() { echo "$*" | tee -a "$summary"; }
short() { [ "$(left)" -lt "$1" ] && say "$2: SKIPPED: no time left"; }
bench() { timeout 120 "$here/towers" bench --device cuda "$@"; }
# The flags of `bench` for: recipe, batch, precision.
cell() { echo "--recipe $1 --batch $2 --precision $3"; }

measure() { # a label, then a command that prints one JSON object
    short 25 "$1" && return
    local label=$1 line
    shift
    line=$(timeout 120 "$@" 2>"$out/last-error.log" | grep '^{' | tail -1)
    if [ -z "$line" ]; then
        say "$label: failed: $(tail -2 "$out/last-error.log" | tr '\n' ' ')"
        return 1
    fi
    echo "$line" >>"$results"
    say "$label: $(echo "$line" | sed -E 's/.*"images_per_s": ?([0-9.]+).*/\1/') images/s$(
        echo "$line" | grep -o '"not_recorded":"[^"]*"' | sed 's/^/; /')"
}

towers() { # recipe, batch, precision; a failure is tried again with every launch waited for, which names the culprit
    local label="towers $1 $2 $3"
    measure "$label" "$here/towers" bench --device cuda $(cell "$@") --seconds 2 --json && return
    short 25 "$label" && return
    failed=1
    CUDA_LAUNCH_BLOCKING=1 bench $(cell "$@") --seconds 0 --repeats 1 >"$out/blocking-$1-$2-$3.log" 2>&1
    say "  with CUDA_LAUNCH_BLOCKING: exit $?: $(tail -2 "$out/blocking-$1-$2-$3.log" | tr '\n' ' ')"
}

torch() { # model, batch, precision, way
    measure "torch/$4 $1 $2 $3" python3 "$here/peer_torch.py" "$1" --way "$4" --batch "$2" --precision "$3" --seconds 2
}

profile() { # recipe, batch, precision: time by kernel, and which algorithms were chosen
    short 30 "profile $1 $2 $3" && return
    local name="$1-$2-$3"
    TOWERS_PROFILE="$out/profile-$name.txt" TOWERS_TIMELINE="$out/timeline-$name.txt" CUDA_INJECTION64_PATH="$here/time_by_kernel.so" \
        bench $(cell "$@") --seconds 1 --repeats 1 >"$out/engine-$name.txt" 2>"$out/profile-$name.log"
    say "profile $name: exit $?; $(tail -1 "$out/engine-$name.txt")"
    head -13 "$out/profile-$name.txt" 2>/dev/null | cut -c1-150 | tee -a "$summary"
}

run_tests() { # how much time is to be left afterwards, then programs
    local rest=$1 program name part status verdict
    shift
    for program in "$@"; do
        [ -x "$program" ] || continue
        name=$(basename "$program")
        short $((rest + 15)) "$name" && continue
        # Of the whole runs and the collectives only those that are about a GPU; and none that emulates one.
        case $name in
            tests-end_to_end) part=cuda:: ;;
            parallel-towers_parallel) part=nccl:: ;;
            tensor-cuda-kernels) continue ;;
            tensor-cuda-towers_tensor_cuda) part=$emulating ;;
            *) part= ;;
        esac
        timeout $(($(left) - rest)) "./$program" $part --test-threads 4 --show-output >"$out/$name.log" 2>&1
        status=$?
        verdict=$(grep -h '^test result' "$out/$name.log" | tail -1)
        say "$name: exit $status; ${verdict:-no result}"
        if [ $status -ne 0 ]; then
            failed=1
            grep -hE '^test .*FAILED|panicked at|^error' -A2 "$out/$name.log" | head -20 | tee -a "$summary"
        fi
    done
}

say "== machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$summary"
timeout 120 "$here/towers" devices 2>&1 | tee -a "$summary"

say "== first steps"
towers keras-cnn 128 fp32
towers minigooglenet 64 bf16

say "== self-test"
short 60 selftest || {
    timeout 120 "$here/towers" selftest --device cuda --output "$out/selftest.md" >"$out/selftest.log" 2>&1
    status=$?
    [ $status -ne 0 ] && failed=1
    say "selftest: exit $status; $(tail -1 "$out/selftest.log")"
}

say "== tests"
cd "$here/tests" || exit 1
first='tensor-cuda-conformance tests-end_to_end tensor-cuda-libraries parallel-towers_parallel'
run_tests 300 $first
run_tests 300 $(ls | grep -vxF "$(printf '%s\n' $first)")
cd "$out" || exit 1

say "== speed"
torch minigooglenet 64 bf16 graph
measure "towers minigooglenet 64 bf16, on one stream" "$here/towers" bench --device cuda --one-stream \
    $(cell minigooglenet 64 bf16) --seconds 2 --json
towers minigooglenet 1024 bf16
torch minigooglenet 1024 bf16 graph
towers keras-cnn 128 bf16
torch keras_cnn 128 bf16 graph
towers resnet18 128 bf16
torch resnet18 128 bf16 graph
profile minigooglenet 64 bf16
profile minigooglenet 1024 bf16
profile keras-cnn 128 bf16

if [ -n "$data" ]; then
    say "== training on $data"
    for precision in bf16 fp32; do
        short 40 "$precision" && break
        timeout $(($(left) - 10)) "$here/towers" train --device cuda --precision $precision --epochs 3 --data-dir "$data" \
            --offline --no-progress --output "$out/run-$precision" 2>&1 | tee -a "$summary"
    done
    short 40 airbench94 || {
        "$here/towers" train --recipe airbench94 --device cuda --precision bf16 --data-dir "$data" --offline --no-progress \
            --output "$out/airbench94" 2>&1 | tail -3 | tee -a "$summary"
        "$here/towers" evaluate "$out/airbench94" --device cuda --precision bf16 --tta=flip-translate --data-dir "$data" --offline |
            head -3 | tee -a "$summary"
    }
    measure "torch/graph epoch 64 bf16" python3 "$here/peer_torch.py" minigooglenet --way graph --precision bf16 --epoch
fi

say "== more"
for precision in fp32 tf32 fp16; do
    towers minigooglenet 64 $precision
    torch minigooglenet 64 $precision graph
done
for way in compile eager; do
    torch minigooglenet 64 bf16 $way
    torch minigooglenet 1024 bf16 $way
    torch keras_cnn 128 bf16 $way
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        short 70 "$tool" && continue
        timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$here/towers" bench --device cuda --recipe keras-cnn \
            --batch 32 --seconds 0 --repeats 1 >"$out/sanitizer-$tool.log" 2>&1
        say "$tool: exit $? $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/sanitizer-$tool.log" | tail -1)"
    done
fi
say "== done after $SECONDS s"
exit $failed
