#!/usr/bin/env bash
# usage: track_packages_test.sh DIR
#
# Runs track_test.py with the packages mlflow and wandb of PyPI. A Python in DIR gets them the first
# time; that takes a minute and 1 GB. Exit 77 (skipped) if they cannot be installed.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
wanted=(mlflow==3.17.2 wandb==0.31.0)
if [[ $(cat "$1/installed.txt" 2>/dev/null) != "${wanted[*]}" ]]; then
  rm -rf "$1"
  mkdir -p "$1"
  if ! { python3 -m venv "$1" && "$1/bin/pip" install --quiet --timeout 15 --retries 1 "${wanted[@]}"; } \
    >"$1/pip.log" 2>&1 </dev/null; then
    tail -n 1 "$1/pip.log"
    echo "SKIPPED: ${wanted[*]} cannot be installed from PyPI"
    exit 77
  fi
  echo "${wanted[*]}" >"$1/installed.txt"
fi
exec "$1/bin/python" -B "$here/track_test.py" --packages
