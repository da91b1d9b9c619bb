#!/usr/bin/env bash
# scripts/packages.sh names what is missing, and without root stops with the command to run; it can do
# without the headers of cuDNN's frontend.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A dpkg-query that knows one package, and an apt-get that must not be called.
printf '#!/bin/sh\nfor name; do :; done\n[ "$name" = present ] && printf installed\n' >"$work/dpkg-query"
printf '#!/bin/sh\necho "apt-get was called" >&2\nexit 9\n' >"$work/apt-get"
chmod +x "$work"/*

# need ENTRY...: need_packages as an ordinary user (EUID cannot be set, so the test replaces it)
need() {
  sed 's/EUID != 0/1/' "$here/../../scripts/packages.sh" >"$work/packages.sh"
  (PATH="$work:$PATH"; . "$work/packages.sh"; need_packages "$@") >"$work/said" 2>&1
}
expect() { "$@" || { echo "failed: $*"; cat "$work/said"; exit 1; }; }

expect need "present=has a reason"
expect test ! -s "$work/said"

status=0
need "present=is there" "absent=is needed" "gone=is too" || status=$?
expect test "$status" = 75
expect grep -q 'absent  *is needed' "$work/said"
expect grep -q 'apt-get update && apt-get install -y --no-install-recommends absent gone' "$work/said"
expect test "$(grep -c 'is there' "$work/said")" = 0
expect test "$(grep -c 'apt-get was called' "$work/said")" = 0

# The headers of cuDNN's frontend: where pip fails, so does it, and where they are, pip is not asked.
printf '#!/bin/sh\nexit 1\n' >"$work/python3"
chmod +x "$work/python3"
frontend() { (PATH="$work:$PATH"; . "$here/../../scripts/packages.sh"; cudnn_frontend "$work/frontend") >"$work/said" 2>&1; }
expect eval '! frontend'
mkdir -p "$work/frontend/include"
touch "$work/frontend/include/cudnn_frontend.h"
expect frontend
echo ok
