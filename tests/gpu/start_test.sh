#!/usr/bin/env bash
# start_test.sh LOCKSTEP RECORDER CASE: a binary with CUDA starts on a host without a usable GPU, and reports the
# reason. RECORDER (recorder.cpp) simulates drivers without a GPU, and a GPU for which the binary has no code.
set -euo pipefail
lockstep=$(realpath "$1") recorder=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/wording.sh
if nvidia-smi >/dev/null 2>&1; then
  echo "skipped: this host has a GPU"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $3 in
  without_a_driver)
    "$lockstep" --version >"$work/out"
    says "$work/out" gpu.none gpu.no_driver
    ;;
  with_the_stub)
    stub=$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")/../lib64/stubs
    [[ -e $stub/libcuda.so ]] || { echo "skipped: the toolkit has no stub of libcuda"; exit 77; }
    ln -s "$stub/libcuda.so" "$work/libcuda.so.1"
    LD_LIBRARY_PATH=$work "$lockstep" --version >"$work/out"
    says "$work/out" gpu.stub
    ;;
  with_an_old_driver)
    LD_PRELOAD=$recorder LOCKSTEP_RECORD=$work/record LOCKSTEP_RECORD_DRIVER=12020 \
      "$lockstep" --version >"$work/out"
    says "$work/out" gpu.none gpu.old_driver version=12.2 gpu.update_driver
    ;;
  with_a_driver_but_no_gpu)
    LD_PRELOAD=$recorder LOCKSTEP_RECORD=$work/record LOCKSTEP_RECORD_DRIVER=0 \
      "$lockstep" --version >"$work/out"
    says "$work/out" gpu.none gpu.not_found
    ;;
  refuses_cuda)
    status=0
    "$lockstep" generate nowhere --device cuda >"$work/out" 2>&1 || status=$?
    ((status == 78)) || { echo "exit $status of generate"; exit 1; }
    says "$work/out" gpu.cannot gpu.no_driver
    printf 'x%.0s' {1..4096} | "$lockstep" data pack - --out "$work/data" >"$work/out" 2>&1
    status=0
    "$lockstep" train configs/quickstart.toml --run "$work/run" --device cuda \
      --set data.train="$work/data" --set data.validation=[] >"$work/out" 2>&1 || status=$?
    says "$work/out" gpu.cannot gpu.no_driver
    ((status == 78)) || { echo "exit $status, expected 78"; exit 1; }
    ;;
  refuses_a_gpu_of_another_architecture)
    printf 'x%.0s' {1..4096} | "$lockstep" data pack - --out "$work/data" >"$work/out" 2>&1
    status=0
    LD_PRELOAD=$recorder LOCKSTEP_RECORD=$work/record LOCKSTEP_RECORD_CAPABILITY=10 "$lockstep" train \
      configs/quickstart.toml --run "$work/run" --device cuda --set data.train="$work/data" \
      --set data.validation=[] >"$work/out" 2>&1 || status=$?
    says "$work/out" gpu.architecture capability=10.0
    grep -qF -- "-DLOCKSTEP_CUDA_ARCHITECTURES=100a" "$work/out" || { cat "$work/out"; exit 1; }
    ((status == 78)) || { echo "exit $status, expected 78"; exit 1; }
    ;;
  trains_on_the_cpu)
    cat tests/gpu/*.sh configs/*.toml | "$lockstep" data pack - --out "$work/data" >"$work/out" 2>&1
    "$lockstep" train configs/quickstart.toml --run "$work/run" --set data.train="$work/data" \
      --set data.validation=[] --set train.steps=2 >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    says "$work/out" step.of step=2 steps=2
    ;;
  *) echo "no case $3"; exit 1 ;;
esac
