#!/usr/bin/env bash
# tensorboard_test.sh BUILD: event files as the tensorboard package of PyPI reads them. The package is
# installed once, into BUILD/tensorboard; without a way to install it the test is skipped (77).
set -euo pipefail
build=$1
here=$(dirname "${BASH_SOURCE[0]}")
venv=$build/tensorboard

if [[ ! -e $venv/installed ]]; then
  rm -rf "$venv"
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet tensorboard; } >"$build/tensorboard.log" 2>&1; then
    tail -n 3 "$build/tensorboard.log"
    echo "skipped: tensorboard cannot be installed from PyPI here; see $build/tensorboard.log"
    exit 77
  fi
  touch "$venv/installed"
fi
"$venv/bin/python" -B "$here/tensorboard_test.py" "$build/tests/write_events"
