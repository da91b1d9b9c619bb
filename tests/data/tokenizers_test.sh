#!/usr/bin/env bash
# tokenizers_test.sh BUILD OPTION...: tokenizers_agree.py and published_agree.py with packages of PyPI, which
# are put once into BUILD/tokenizers; where they cannot be had the test is skipped (77).
set -euo pipefail
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/packages.sh"
if ! { tokenizers "$build/tokenizers" && published_tokenizers "$build/tokenizers/published"; }; then
  echo "skipped: the packages of tokenizers cannot be had from PyPI here"
  exit 77
fi
export PYTHONPATH=$build/tokenizers:$build/tokenizers/published
python3 -B "$here/tokenizers_agree.py" "$build/tests/tokenize" "$@"
python3 -B "$here/published_agree.py" "$build/tests/tokenize" "$build/tokenizers/published" "$@"
