#!/usr/bin/env bash
# Builds Lockstep and runs its tests.
#
#   ./test.sh              the CI tier: what a change must pass, in minutes
#   ./test.sh --full       also what takes three hours on two cores: the sanitizers, clang-tidy of all sources,
#                          long fuzzing, a run killed 500 times, every layout, shards of 2^31 tokens,
#                          compiling for the hosts of Grace
#   ./test.sh --full=PART  one part of --full, the others another day: cpu, cuda, asan (AddressSanitizer and
#                          UBSan) or tsan (ThreadSanitizer)
#   ./test.sh --proof      the tests that carry the proof, in less than 8 minutes with the build: kernels and models
#                          against float64 and PyTorch, layouts, order of data, checkpoints, resume, kills
#   ./test.sh --soak       also what takes a night: the same fuzzing and killing, 50 times longer and
#                          more, every layout with every family, the analyzer, and 30 faults in the product that
#                          its tests must find (tests/mutation)
#   ./test.sh WORD...      only the tests whose name holds one of these words (regular expressions)
#
# Where the CUDA toolkit is, each also compiles the CUDA kernels and checks what can be without a GPU;
# with one, see tests/gpu/run.sh.
#
# Ends with `N passed, N failed, N skipped`; exits with 1 when a test failed or none ran, with 75
# when packages are missing and only root may install them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. scripts/packages.sh

presets=(cpu)
cuda=()
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then cuda=(cuda); fi
labels='^ci$' cuda_labels='^cuda$'
words=()
targets=()  # all
more_packages=()

# The tests that carry the proof: all of kernels and models, on CPUs and the simulated GPU, and what the sources
# below test.
proof_targets=(lockstep fault {kernels,simt,model,train,data,checkpoint,dist,end_to_end}_tests)
proof_sources=(
  tests/train/{layouts,layout_runs,reshape,sharded_memory,fp8_layouts,optimizer_oracle,step/{training,volume,weight_hash}}_test.cpp
  tests/data/{order,loader,mixture,rows}_test.cpp tests/checkpoint/{checkpointer,corruption,safetensors}_test.cpp
  tests/dist/{communicator,param_store,reduction}_test.cpp tests/end_to_end/{run,resume,kill}_test.cpp)
proof_words() {
  local suites
  suites=$(sed -nE 's/^TEST(_F|_P)?\(([A-Za-z0-9]+),.*/\2/p' "${proof_sources[@]}" | sort -u | paste -sd '|')
  words=('^(kernels|model)[.@]' '^simt\.([a-z_]+/)?[A-Z]' '^end_to_end\.deaths$'
         "^(train|data|checkpoint|dist|end_to_end)\\.([a-z_]+/)?($suites)\\.")
}
for argument in "$@"; do
  case $argument in
    --full)
      presets=(tsan asan cpu) labels='^(ci|full)$' cuda_labels='^cuda(_full)?$'
      more_packages=("${full_packages[@]}")
      ;;
    --full=cpu | --full=asan | --full=tsan | --full=cuda)
      presets=("${argument#--full=}") labels='^(ci|full)$' cuda_labels='^cuda(_full)?$'
      if [[ ${presets[0]} != cuda ]]; then
        cuda=()
      elif ((${#cuda[@]})); then
        presets=()
      else
        echo "$0: $argument needs nvcc, on PATH or in /usr/local/cuda/bin" >&2
        exit 64
      fi
      more_packages=("${full_packages[@]}")
      ;;
    --proof) proof_words; targets=(--target "${proof_targets[@]}") cuda=() ;;
    --soak)
      presets=(tsan asan cpu) labels='^(ci|full|soak)$' cuda_labels='^cuda(_full)?$'
      more_packages=("${full_packages[@]}")
      ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) echo "$0: no option $argument (--help lists them)" >&2; exit 64 ;;
    *) words+=("$argument") ;;
  esac
done

need_packages "${build_packages[@]}" "${script_packages[@]}" "${test_packages[@]}" "${more_packages[@]}"

if ((${#cuda[@]})) && ! cudnn_frontend build/cudnn_frontend; then
  echo "building without cuDNN's attention: its frontend cannot be had from PyPI"
fi

# build PRESET, quietly unless it fails
build() {
  echo "building preset $1"
  local start=$SECONDS
  mkdir -p "build/$1"
  local log="build/$1/build.log"
  local targets=("${targets[@]}") benchmarks=ON  # benchmarks must compile, but not with a sanitizer
  [[ $1 == cuda ]] && targets=(--target lockstep cuda_tests cudnn_tests gpu_recorder gpu_bench)
  [[ $1 == [at]san ]] && benchmarks=OFF
  local options=()
  [[ $1 == cuda ]] && options=(-DLOCKSTEP_HOST_BUILD="$PWD/build/cpu")  # built before it
  # Its objects are taken from there, and brought up to date first.
  [[ $1 != cuda || -e build/cpu/CMakeCache.txt ]] || cmake --preset cpu >"$log" 2>&1
  if ! { cmake --preset "$1" -DLOCKSTEP_TESTS=ON -DLOCKSTEP_BENCHMARKS="$benchmarks" "${options[@]}" &&
         cmake --build --preset "$1" "${targets[@]}"; } >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "the build of preset $1 failed; all it said is in $log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
  echo "built preset $1 in $((SECONDS - start)) s"
}

# run_tests PRESET LABELS; fails where no test has the words
run_tests() {
  local filter=()
  if ((${#words[@]})); then
    filter=(-R "$(IFS='|'; echo "${words[*]}")")
    ctest --preset "$1" -N -L "$2" "${filter[@]}" | grep -qx 'Total Tests: 0' && return 1
  fi
  rm -f "build/$1/tests.xml"
  # One line for a hundred passed tests, everything about the others. Failures are read from the file.
  # One more than there are processors, because some tests wait most of the time.
  ctest --preset "$1" -j "$(($(nproc) + 1))" -L "$2" "${filter[@]}" --output-junit tests.xml \
    --test-output-size-passed 65536 </dev/null |
    awk '/^ +Start +[0-9]+:/ || /^$/ { next }
         / Passed +[0-9.]+ sec$/ { if (++passed % 100) next }
         { print; fflush() }' || true
  [[ -s build/$1/tests.xml ]] || { echo "ctest of preset $1 left no result"; exit 1; }
}

results=()
for preset in "${presets[@]}" "${cuda[@]}"; do
  build "$preset"
  case $preset in
    cpu) run_tests cpu "$labels" || continue ;;
    cuda) run_tests cuda "$cuda_labels" || continue ;;
    *) run_tests "$preset" '^ci$' || continue ;;  # under sanitizers the long tests would take a day
  esac
  results+=("$preset=build/$preset/tests.xml")
done
python3 scripts/test_summary.py "${results[@]}"
