#!/usr/bin/env bash
# Runs Lockstep, PyTorch, `transformers`, `datatrove` and `megatron-core`, and compares their results:
# see compare.py.
#
#   tests/oracle/run.sh                 random models of all families, with a new seed each time
#   tests/oracle/run.sh --seed N        the draws of this seed, which the earlier run printed
#   tests/oracle/run.sh --family NAME   only this family; repeatable
#   tests/oracle/run.sh --files N       number of damaged safetensors files (default 5000)
#   tests/oracle/run.sh --keep DIR      keep models, data and runs in this directory
#
# The first run installs requirements.txt from PyPI into build/oracle/venv. To use a Python that has
# these packages, set LOCKSTEP_ORACLE_PYTHON to it.
# Ends with `N passed, N failed, N skipped`. Exits with 1 if a check failed or none passed, with 75 if
# packages are missing and cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case " $* " in *" -h "* | *" --help "*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
. scripts/packages.sh

folder=build/oracle
python=${LOCKSTEP_ORACLE_PYTHON:-}
mkdir -p "$folder"
needed=("${build_packages[@]}" "libgtest-dev=configures the build of tests")
[[ -n $python ]] || needed+=("python3-venv=isolates the packages of the oracle")
need_packages "${needed[@]}"

# install_packages: installs requirements.txt, unless its present version is installed
install_packages() {
  local venv=$folder/venv wanted=tests/oracle/requirements.txt
  python=$venv/bin/python
  cmp -s "$wanted" "$venv/installed.txt" && return
  echo "installing $(grep -v '^#' "$wanted" | tr '\n' ' ')into $venv"
  rm -rf "$venv"
  if ! { python3 -m venv "$venv" && "$python" -m pip install --quiet -r "$wanted"; } \
    >"$folder/pip.log" 2>&1 </dev/null; then
    tail -n 3 "$folder/pip.log"
    echo "cannot install the packages of $wanted; the output of pip is in $folder/pip.log." \
      "Check that PyPI is reachable, or set LOCKSTEP_ORACLE_PYTHON to a Python that has them."
    exit 75
  fi
  cp "$wanted" "$venv/installed.txt"
}

if [[ -z $python ]]; then
  install_packages
elif ! "$python" -c 'import datatrove, megatron.core, numpy, safetensors, torch, transformers' 2>"$folder/import.log"; then
  tail -n 1 "$folder/import.log"
  echo "LOCKSTEP_ORACLE_PYTHON=$python lacks a package of tests/oracle/requirements.txt"
  exit 75
fi

echo "building preset cpu"
if ! { cmake --preset cpu -DLOCKSTEP_TESTS=ON &&
  cmake --build --preset cpu --target lockstep safetensors_verdict; } \
  >"$folder/build.log" 2>&1; then
  tail -n 60 "$folder/build.log"
  echo "the build failed; its output is in $folder/build.log"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

# The tests make all models themselves; nothing is downloaded from the Hugging Face hub.
export HF_HUB_OFFLINE=1
"$python" -B tests/oracle/compare.py "$@" build/cpu/lockstep build/cpu/tests/safetensors_verdict
