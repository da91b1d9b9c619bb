#!/usr/bin/env bash
# usage: install.sh BUILD
#
# What `cmake --install` writes works after it was moved, and holds what a person needs.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/here" >/dev/null
mv "$work/here" "$work/moved"
for file in bin/lockstep share/lockstep/configs/quickstart.toml \
    share/lockstep/cluster/train.sbatch share/doc/lockstep/LICENSE; do
  [[ -f $work/moved/$file ]] || { echo "the installed tree has no $file"; exit 1; }
done
"$work/moved/bin/lockstep" --version
if readelf -d "$work/moved/bin/lockstep" | grep -E 'R(UN)?PATH'; then
  echo "the installed binary looks for libraries at a place of the machine that built it"
  exit 1
fi
