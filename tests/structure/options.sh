#!/usr/bin/env bash
# usage: options.sh SOURCE BUILD
#
# Each option of CMakeLists.txt acts without the others, or is refused with them.
set -euo pipefail
rm -rf "$2"
mkdir -p "$2"
cd "$2"

# configure NAME OPTION...: what it says is in NAME.out.
configure() {
  local name=$1
  shift
  cmake -S "$source" -B "$name" -G Ninja "$@" >"$name.out" 2>&1
}
source=$1

configure bench -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCHMARKS=ON || { cat bench.out; exit 1; }
ninja -C bench -t targets all >targets
grep -q '^bench/step_bench:' targets || { echo "no benchmark is built without tests"; exit 1; }
! grep -q '^tests/core_tests:' targets || { echo "tests are built without LOCKSTEP_TESTS"; exit 1; }
# What CMakeLists.txt reads, it declares, so that a list of options (cmake -L) has it.
for option in $(grep -oE 'if\((NOT )?LOCKSTEP_[A-Z_]+' "$source/CMakeLists.txt" | grep -oE 'LOCKSTEP_[A-Z_]+' | sort -u); do
  grep -q "^$option:" bench/CMakeCache.txt || { echo "$option is no declared option"; exit 1; }
done
! configure compute -DLOCKSTEP_COMPUTE_ONLY=ON || { echo "tests of what is not built"; exit 1; }
grep -q -e '-DLOCKSTEP_TESTS=OFF' compute.out || { cat compute.out; exit 1; }
