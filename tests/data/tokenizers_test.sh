#!/usr/bin/env bash
# tokenizers_test.sh BUILD OPTION...: tokenizers_agree.py with the package `tokenizers` of PyPI, which is
# put once into BUILD/tokenizers; where it cannot be had the test is skipped (77).
set -euo pipefail
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/packages.sh"
if ! tokenizers "$build/tokenizers"; then
  echo "skipped: the package tokenizers cannot be had from PyPI here"
  exit 77
fi
PYTHONPATH=$build/tokenizers python3 -B "$here/tokenizers_agree.py" "$build/tests/tokenize" "$@"
