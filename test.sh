#!/usr/bin/env bash
# Builds Lockstep and runs its tests.
#
#   ./test.sh              the CI tier, which every change must pass; takes minutes
#   ./test.sh --full       also the slow tests, three hours on two cores: sanitizers, clang-tidy of all
#                          sources, long fuzzing, a run killed 500 times, every layout, shards of 2^31
#                          tokens, compiling for Grace hosts (aarch64)
#   ./test.sh --full=PART  one part of --full: cpu, cuda, asan (AddressSanitizer and UBSan) or tsan
#                          (ThreadSanitizer)
#   ./test.sh --proof      the most important tests, under 8 minutes with the build: kernels and models
#                          against float64 and PyTorch, layouts, data order, checkpoints, resume, kills
#   ./test.sh --soak       also tests of a whole night: fuzzing and kills 50 times longer, every layout
#                          with every family, the analyzer, mutation (tests/mutation)
#   ./test.sh WORD...      only the tests whose name matches one of these regular expressions
#
# If the CUDA toolkit is installed, each also compiles the CUDA kernels and runs the tests that need no
# GPU. On a host with a GPU, see tests/gpu/run.sh.
#
# The last line is `N passed, N failed, N skipped`. Exits with 1 if a test failed or none ran, with 75
# if packages are missing and only root may install them.
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

# The tests of --proof: all of kernels and models, on CPUs and the simulated GPU, and the tests in the
# sources below.
proof_targets=(lockstep fault {kernels,simt,model,train,data,checkpoint,dist,end_to_end}_tests)
proof_sources=(
  tests/train/{layouts,layout_runs,reshape,sharded_memory,fp8_layouts,optimizer_oracle,step/{training,volume,weight_hash}}_test.cpp
  tests/data/{batch_rows,order,loader,mixture}_test.cpp tests/checkpoint/{checkpointer,corruption,safetensors}_test.cpp
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
    -*) echo "$0: unknown option $argument; --help lists the options" >&2; exit 64 ;;
    *) words+=("$argument") ;;
  esac
done

need_packages "${build_packages[@]}" "${script_packages[@]}" "${test_packages[@]}" "${more_packages[@]}"

if ((${#cuda[@]})) && ! cudnn_frontend build/cudnn_frontend; then
  echo "building without cuDNN attention: cannot download its frontend from PyPI"
fi

# build PRESET, quietly unless it fails
build() {
  echo "building preset $1"
  local start=$SECONDS
  mkdir -p "build/$1"
  local log="build/$1/build.log"
  local targets=("${targets[@]}") benchmarks=ON
  [[ $1 == cuda ]] && targets=(--target lockstep cuda_tests cudnn_tests gpu_recorder gpu_bench)
  [[ $1 == [at]san || ($1 == cpu && $labels == '^ci$') ]] && benchmarks=OFF  # --full compiles them
  local options=()
  [[ $1 == cuda ]] && options=(-DLOCKSTEP_HOST_BUILD="$PWD/build/cpu")  # built before it
  # The preset cuda takes objects from build/cpu, and updates them first.
  [[ $1 != cuda || -e build/cpu/CMakeCache.txt ]] || cmake --preset cpu >"$log" 2>&1
  if ! { cmake --preset "$1" -DLOCKSTEP_TESTS=ON -DLOCKSTEP_BENCHMARKS="$benchmarks" "${options[@]}" &&
         cmake --build --preset "$1" "${targets[@]}"; } >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "the build of preset $1 failed; the full log is $log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
  echo "built preset $1 in $((SECONDS - start)) s"
}

# run_tests PRESET LABELS; fails if no test matches the words
run_tests() {
  local filter=()
  if ((${#words[@]})); then
    filter=(-R "$(IFS='|'; echo "${words[*]}")")
    ctest --preset "$1" -N -L "$2" "${filter[@]}" | grep -qx 'Total Tests: 0' && return 1
  fi
  rm -f "build/$1/tests.xml"
  # Prints one line for a hundred passed tests, and the output of the others. test_summary.py reads the
  # failures from the file. Two jobs more than CPU cores, because some tests mostly wait.
  ctest --preset "$1" -j "$(($(nproc) + 2))" -L "$2" "${filter[@]}" --output-junit tests.xml \
    --test-output-size-passed 65536 </dev/null |
    awk '/^ +Start +[0-9]+:/ || /^$/ { next }
         / Passed +[0-9.]+ sec$/ { if (++passed % 100) next }
         { print; fflush() }' || true
  [[ -s build/$1/tests.xml ]] || { echo "ctest of preset $1 wrote no result"; exit 1; }
}

results=()
cuda_build=''
for preset in "${presets[@]}" "${cuda[@]}"; do
  if [[ $preset == cuda && -n $cuda_build ]]; then
    if ! wait "$cuda_build"; then  # the tests of the preset cpu have run: count them too
      echo '<testsuite><testcase name="build" status="fail"/></testsuite>' >build/cuda/tests.xml
      results+=("cuda=build/cuda/tests.xml")
      continue
    fi
  else
    build "$preset"
  fi
  # The preset cuda is built, at low priority, while tests of the preset cpu wait.
  if [[ $preset == cpu ]] && ((${#cuda[@]})); then
    (renice -n 19 -p "$BASHPID" >/dev/null; build cuda) &
    cuda_build=$!
  fi
  case $preset in
    cpu) run_tests cpu "$labels" || continue ;;
    cuda) run_tests cuda "$cuda_labels" || continue ;;
    *) run_tests "$preset" '^ci$' || continue ;;  # the slow tests would take a day under sanitizers
  esac
  results+=("$preset=build/$preset/tests.xml")
done
python3 scripts/test_summary.py "${results[@]}"
