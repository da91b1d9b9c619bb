#!/usr/bin/env bash
# Compares Lockstep with PyTorch, `transformers`, `datatrove` and `megatron-core`, live: see
# compare.py.
#
#   tests/oracle/run.sh                 models of all families, drawn anew each time
#   tests/oracle/run.sh --seed N        the same draws again; the seed is printed
#   tests/oracle/run.sh --family NAME   only this family; repeatable
#   tests/oracle/run.sh --files N       the number of damaged safetensors files (default 5000)
#   tests/oracle/run.sh --keep DIR      leave models, data and runs there
#
# The first run installs requirements.txt from PyPI into build/oracle/venv. LOCKSTEP_ORACLE_PYTHON
# names a Python that has these packages already.
# Ends with `N passed, N failed, N skipped`; exits with 1 when a check failed or none ran, with 75
# when packages are missing and cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case " $* " in *" -h "* | *" --help "*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
. scripts/packages.sh

folder=build/oracle
python=${LOCKSTEP_ORACLE_PYTHON:-}
mkdir -p "$folder"
needed=("${build_packages[@]}" "libgtest-dev=is looked for when tests are configured")
[[ -n $python ]] || needed+=("python3-venv=keeps the packages of the oracle apart")
need_packages "${needed[@]}"

# install_packages, once for each state of requirements.txt
install_packages() {
  local venv=$folder/venv wanted=tests/oracle/requirements.txt
  python=$venv/bin/python
  cmp -s "$wanted" "$venv/installed.txt" && return
  echo "installing $(grep -v '^#' "$wanted" | tr '\n' ' ')into $venv"
  rm -rf "$venv"
  if ! { python3 -m venv "$venv" && "$python" -m pip install --quiet -r "$wanted"; } \
    >"$folder/pip.log" 2>&1 </dev/null; then
    tail -n 3 "$folder/pip.log"
    echo "cannot install the oracle's packages: is PyPI reachable? All that pip said is in" \
      "$folder/pip.log; LOCKSTEP_ORACLE_PYTHON may name a Python that has them"
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
  echo "the build failed; all it said is in $folder/build.log"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

# Everything is made here: nothing is looked up at the hub of models.
export HF_HUB_OFFLINE=1
"$python" -B tests/oracle/compare.py "$@" build/cpu/lockstep build/cpu/tests/safetensors_verdict
