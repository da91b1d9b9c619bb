#!/usr/bin/env bash
# usage: release.sh OUT
#
# Writes a release of the commit that is checked out into the directory OUT: the sources as
# lockstep-VERSION.tar.gz, a Debian package of the CPU build, and SHA256SUMS. The archive of the sources
# has the same bytes each time. So has the package, if compiler and libraries are the same.
set -euo pipefail
[[ $# == 1 && $1 != -* ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 64; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

[[ -z $(git status --porcelain --untracked-files=no) ]] || {
  echo "release.sh: the working tree has changes; commit them first" >&2
  exit 65
}
version=$(sed -nE 's/^project\(lockstep VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
git archive --prefix="lockstep-$version/" HEAD | gzip -n9 >"$out/lockstep-$version.tar.gz"

# The package is built in a clone, which lacks files that are not committed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/lockstep"
cd "$work/lockstep"
cmake --preset cpu -DLOCKSTEP_TESTS=OFF >"$work/log" && cmake --build --preset cpu --target lockstep >>"$work/log" ||
  { tail -n 30 "$work/log"; exit 1; }
cpack --config build/cpu/CPackConfig.cmake -B "$out" >"$work/log" || { tail -n 30 "$work/log"; exit 1; }
cd "$out"
rm -rf _CPack_Packages
sha256sum "lockstep-$version.tar.gz" lockstep_"$version"_*.deb | tee SHA256SUMS
