#!/usr/bin/env bash
# Every C++ and CUDA source in the form of .clang-format. Exit 77 (skipped) without clang-format.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v clang-format >/dev/null; then
  echo "SKIPPED: clang-format is not installed"
  exit 77
fi
find core kernels dist model data checkpoint train launch tests \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -P 2 -n 20 clang-format --dry-run -Werror
