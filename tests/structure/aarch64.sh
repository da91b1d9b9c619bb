#!/usr/bin/env bash
# usage: aarch64.sh SOURCE BUILD
#
# What runs on the host of a Grace-Hopper machine compiles for its processor: core, kernels, dist and
# model, warnings as errors. Exit 77 (skipped) without the cross compiler.
set -euo pipefail
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
  echo "SKIPPED: aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu) is not installed"
  exit 77
fi
cmake -S "$1" -B "$2" -G Ninja --toolchain "$1/cmake/aarch64.cmake" \
  -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_COMPUTE_ONLY=ON -DLOCKSTEP_TESTS=OFF
cmake --build "$2"
# It is indeed ARM code, all of it.
machines=$(find "$2" -name 'liblockstep_*.a' -exec readelf -h {} + | sed -n 's/^ *Machine: *//p' | sort -u)
[[ $machines == AArch64 ]] || { echo "compiled for: $machines"; exit 1; }
