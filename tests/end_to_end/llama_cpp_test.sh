#!/usr/bin/env bash
# llama_cpp_test.sh BUILD LOCKSTEP: llama_cpp_test.py with llama-cpp-python, whose source PyPI has: the first
# run compiles it in BUILD/llama_cpp, for minutes. Skipped (77) if PyPI cannot be reached.
set -euo pipefail
venv=$1/llama_cpp
here=$(cd "$(dirname "$0")" && pwd)
packages=(llama-cpp-python==0.3.36 numpy==2.4.6 tokenizers==0.23.3)

if [[ $(cat "$venv/installed.txt" 2>/dev/null) != "${packages[*]}" ]]; then
  rm -rf "$venv"
  export CMAKE_BUILD_PARALLEL_LEVEL=2
  export CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DGGML_OPENMP=OFF"
  if ! { python3 -m venv "$venv" && "$venv/bin/python" -m pip install "${packages[@]}"; } \
    >"$1/llama_cpp.log" 2>&1 </dev/null; then
    tail -n 3 "$1/llama_cpp.log"
    echo "skipped: llama-cpp-python cannot be installed from PyPI here; see $1/llama_cpp.log"
    exit 77
  fi
  echo "${packages[*]}" >"$venv/installed.txt"
fi
"$venv/bin/python" -B "$here/llama_cpp_test.py" "$2"
