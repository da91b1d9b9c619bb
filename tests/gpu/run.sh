#!/usr/bin/env bash
# Runs the tests that need a GPU, offline. Each part ends within 8 minutes and with a line of its
# counts; what it says goes to build/gpu/PART.log too, line by line.
#
#   tests/gpu/run.sh [PART...]
#     facts      the GPU, its driver, the toolkit
#     build      the preset cuda, where LOCKSTEP_BUNDLE is set with the headers of that directory
#                (scripts/gpu_bundle.sh)
#     operators  every operator against its CPU kernel, twice for the same bits; cuDNN's graphs
#     training   whole steps of small models against the CPU's, for each family; with CUDA graphs
#                and with offloading against without
#     runs       the program: trains, stops, goes on with the same bits, as without CUDA graphs;
#                generates; evaluates
#     sanitizer  memcheck and racecheck of compute-sanitizer over the operators
#     bench      tests/bench/gpu, whose tables go to the log
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
logs=build/gpu
mkdir -p "$logs"
lockstep=build/cuda/lockstep
tests=build/cuda/tests/cuda_tests
passed=0 failed=0 skipped=0

# cuDNN from a Python package (torch brings it), where the system has none.
if [[ $(ldconfig -p) != *libcudnn.so.9* ]]; then
  cudnn=$(python3 -c 'import nvidia.cudnn as m; print(list(m.__path__)[0])' 2>/dev/null)
  if [[ -n $cudnn ]]; then
    export LD_LIBRARY_PATH=$cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export CMAKE_PREFIX_PATH=$cudnn${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  fi
fi
if [[ -n ${LOCKSTEP_BUNDLE:-} ]]; then
  bundle=$(cd "$LOCKSTEP_BUNDLE" && pwd) || exit
  export CPLUS_INCLUDE_PATH=$bundle/usr/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  export CMAKE_PREFIX_PATH=$bundle/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
fi

# check NAME COMMAND...: one test
check() {
  local name=$1 begin=$SECONDS
  shift
  if [[ $(type -t "$1") == function ]]; then "$@"; else timeout 470 "$@"; fi >"$logs/$name.out" 2>&1
  local status=$?
  if ((status == 0)); then
    ((++passed))
    echo "passed   $name, $((SECONDS - begin)) s"
  else
    ((++failed))
    echo "FAILED   $name (exit $status), $((SECONDS - begin)) s; the end of $logs/$name.out:"
    tail -n 40 "$logs/$name.out"
  fi
}

# google_tests FILTER [COMMAND...]: the tests of cuda_tests, under COMMAND where there is one
google_tests() {
  local filter=$1 counts
  shift
  timeout 470 "$@" "$tests" --gtest_filter="$filter" --gtest_brief=0 2>&1 | tee "$logs/google.out" |
    grep -E '^\[ +(OK|FAILED|SKIPPED)|^=+ |Failure|Error|^skipped' --line-buffered
  counts=$(grep -c '^\[       OK ' "$logs/google.out")
  passed=$((passed + counts))
  counts=$(grep -cE '^\[  FAILED  \] .* \([0-9]+ ms\)' "$logs/google.out")
  failed=$((failed + counts))
  # A test program that ended early ran fewer tests than it has.
  if ! grep -qE '^\[==========\] .* ran\.' "$logs/google.out"; then
    ((++failed))
    echo "FAILED   cuda_tests ended early"
    tail -n 20 "$logs/google.out"
  fi
}

facts() {
  check nvidia_smi nvidia-smi
  check nvcc nvcc --version
  [[ -x $lockstep ]] && check version "$lockstep" --version
  cat "$logs"/{nvidia_smi,nvcc,version}.out 2>/dev/null
}

build() {
  check configure cmake --preset cuda -DLOCKSTEP_TESTS=ON -DLOCKSTEP_BENCHMARKS=ON
  grep -h 'cuDNN attention' "$logs/configure.out"
  check compile cmake --build --preset cuda --target lockstep cuda_tests cudnn_tests gpu_bench
}

operators() {
  google_tests '-*Training*:*GraphsCuda*:*Fp8Cuda*:*OffloadCuda*'
  check cudnn_graphs build/cuda/tests/cudnn_tests
}
training() { google_tests '*Training*:*GraphsCuda*:*Fp8Cuda*:*OffloadCuda*'; }

# train RUN STEPS [OPTION...]
train() {
  local run=$1 steps=$2
  shift 2
  "$lockstep" train configs/quickstart.toml --run "$run" --device cuda \
    --set data.train=build/gpu/data --set data.validation=[] --set train.steps="$steps" "$@"
}

# last_loss RUN: of its metrics
last_loss() { tail -n 1 "$1/metrics.jsonl" | grep -o '"loss":[0-9.eE+-]*' | cut -d: -f2; }

learns() {
  train build/gpu/learns 300 --set precision.compute="$1" &&
    awk -v loss="$(last_loss build/gpu/learns)" 'BEGIN { exit !(loss > 0 && loss < 3) }'
}

runs() {
  rm -rf build/gpu/{data,whole,parts,learns}
  find kernels model train docs -name '*.cpp' -o -name '*.md' | sort | xargs cat |
    "$lockstep" data pack - --out build/gpu/data >"$logs/pack.out" 2>&1
  check learns_in_bf16 learns bf16
  check generates "$lockstep" generate build/gpu/learns --prompt 'namespace ' --tokens 64 --device cuda
  check evaluates "$lockstep" eval build/gpu/learns --data build/gpu/data --tokens 100000 --device cuda
  rm -rf build/gpu/learns
  check learns_in_fp32 learns fp32
  check a_stopped_run_goes_on_with_the_same_bits stopped_and_whole
  check cuda_graphs_on_and_off_have_the_same_bits graphs_on_and_off
}

graphs_on_and_off() {
  local graphs
  for graphs in on off; do
    rm -rf build/gpu/graphs_$graphs
    train build/gpu/graphs_$graphs 100 --set precision.compute=bf16 \
      --set train.cuda_graphs="$graphs" || return
  done
  cmp build/gpu/graphs_{on,off}/checkpoints/step-00000100/rank-00000.safetensors
}

# A run that is stopped by SIGTERM and started again, against one that is not. Both compute matrix
# products by the same algorithms.
stopped_and_whole() {
  local steps=2000 run=build/gpu/parts
  train build/gpu/whole "$steps" || return
  mkdir -p "$run" && cp build/gpu/whole/numerics.json "$run" || return
  train "$run" "$steps" &
  local pid=$!
  while kill -0 "$pid" && (($(wc -l <"$run/metrics.jsonl") < 50)); do sleep 0.05; done
  kill -TERM "$pid"
  wait "$pid"
  local status=$?
  ((status == 75)) || { echo "exit $status, expected 75"; return 1; }
  train "$run" "$steps" &&
    cmp build/gpu/{whole,parts}/checkpoints/step-0000"$steps"/rank-00000.safetensors
}

sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    ((++skipped))
    echo "skipped  compute-sanitizer is not there"
    return
  fi
  local operators='*equals_the_cpu*-*Training*'
  google_tests "$operators" compute-sanitizer --tool memcheck --error-exitcode 9
  google_tests "$operators" compute-sanitizer --tool racecheck --error-exitcode 9
}

bench() {
  check memory_and_products build/cuda/bench/gpu_bench memory matmul fp8
  check attention_and_steps build/cuda/bench/gpu_bench attention step
  cat "$logs"/{memory_and_products,attention_and_steps}.out
}

parts=("$@")
((${#parts[@]})) || parts=(facts build operators training runs sanitizer bench)
total_failed=0
for part in "${parts[@]}"; do
  case $part in
    facts | build | operators | training | runs | sanitizer | bench) ;;
    *) echo "$0: no part $part" >&2; exit 64 ;;
  esac
  passed=0 failed=0 skipped=0
  echo "== $part"
  "$part" > >(tee "$logs/$part.log") 2>&1
  wait $!  # for tee
  echo "$part: $passed passed, $failed failed, $skipped skipped"
  ((total_failed += failed))
done
((total_failed == 0))
