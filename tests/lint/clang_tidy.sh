#!/usr/bin/env bash
# usage: clang_tidy.sh BUILD [arguments of clang_tidy.py]
#
# Runs clang_tidy.py with clang-tidy from its wheel, kept in BUILD. Exit 77 (skipped) where it cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/packages.sh"
if ! clang_tidy "$1/clang_tidy"; then
  echo "SKIPPED: clang-tidy cannot be had from PyPI"
  exit 77
fi
PATH=$1/clang_tidy/clang_tidy/data/bin:$PATH exec python3 -B "$here/clang_tidy.py" --build "$@"
