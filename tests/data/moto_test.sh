#!/usr/bin/env bash
# usage: moto_test.sh FETCH_SHARDS LOCKSTEP DIR
#
# Starts moto_test.py by a Python of its own in DIR, with moto's server from PyPI, which comes there the
# first time. Exit 77 (skipped) where it cannot be had.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
wanted='moto[server]==5.2.5'
if [[ $(cat "$3/installed.txt" 2>/dev/null) != "$wanted" ]]; then
  rm -rf "$3"
  mkdir -p "$3"
  if ! { python3 -m venv "$3" && "$3/bin/pip" install --quiet --timeout 15 --retries 1 "$wanted"; } \
    >"$3/pip.log" 2>&1 </dev/null; then
    tail -n 1 "$3/pip.log"
    echo "SKIPPED: $wanted cannot be had from PyPI"
    exit 77
  fi
  echo "$wanted" >"$3/installed.txt"
fi
exec "$3/bin/python" -B "$here/moto_test.py" "$1" "$2"
