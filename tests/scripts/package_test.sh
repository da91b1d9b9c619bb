#!/usr/bin/env bash
# usage: package_test.sh BUILD
#
# The Debian package of a build: it is installed into a directory, runs there, and leaves nothing behind.
set -euo pipefail
command -v dpkg-shlibdeps >/dev/null || { echo "SKIPPED: no dpkg-shlibdeps (package dpkg-dev)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }

for name in first second; do
  SOURCE_DATE_EPOCH=1700000000 cpack --config "$1/CPackConfig.cmake" -B "$work/$name" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cpack"; }
done
deb=$(echo "$work"/first/*.deb)
cmp "$deb" "$work"/second/*.deb || fail "two packages of one build differ"

# Each library that the package depends on is of a Debian package that is installed here.
depends=$(dpkg-deb -f "$deb" Depends)
[[ $depends == *libopenmpi* ]] || fail "the package does not depend on Open MPI: $depends"
sed 's/ ([^)]*)//g; s/, /\n/g' <<<"$depends" | while read -r library; do
  dpkg -s "$library" >/dev/null || fail "the package depends on $library, which is not installed"
done

root=$work/root
mkdir -p "$root/var/lib/dpkg/"{updates,info,triggers}
touch "$root/var/lib/dpkg/"{status,available}
dpkg=(dpkg --root="$root" --force-depends --force-not-root --force-script-chrootless --log="$work/dpkg.log")
"${dpkg[@]}" -i "$deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i"; }
# `grep -q` in a pipe would close it before the program has written everything.
"$root/usr/bin/lockstep" --version >"$work/said" && grep -q "^lockstep 0" "$work/said" ||
  fail "the installed program does not run"
"$root/usr/bin/lockstep" config "$root/usr/share/lockstep/configs/quickstart.toml" >"$work/said" &&
  grep -q '^steps = ' "$work/said" || fail "the installed program does not read its configurations"
grep -q completion "$root/usr/share/bash-completion/completions/lockstep" || fail "no completion is installed"
"${dpkg[@]}" -r lockstep >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -r"; }
left=$(find "$root" -path "$root/var" -prune -o -type f -print)
[[ -z $left ]] || fail "files are left: $left"
