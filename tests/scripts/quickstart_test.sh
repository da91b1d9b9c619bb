#!/usr/bin/env bash
# usage: quickstart_test.sh LOCKSTEP
#
# configs/quickstart.toml learns the dictionary: after 900 steps, fewer than the quickstart takes on two
# processors with bf16, the model predicts held-out text better than 1.75 nats a byte (counting
# three-byte sequences reaches 1.95). Exit 77 (skipped) where the dictionary cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/dictionary.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! (prepare_dictionary "$work/source" 524288); then
  echo "SKIPPED: the dictionary cannot be downloaded"
  exit 77
fi
for part in train validation; do
  "$1" data pack "$work/source/$part.txt" --out "$work/$part"
done
"$1" train configs/quickstart.toml --run "$work/run" --set train.steps=900 --set log.every_steps=100 \
  --set data.train="$work/train" --set data.validation="$work/validation"
"$1" eval "$work/run" --tokens 524288 | tee "$work/evaluation.json"
python3 - "$work/evaluation.json" <<'PYTHON'
import json, sys
loss = json.load(open(sys.argv[1]))["loss_nats"]
sys.exit(f"{loss:.4f} nats a byte, expected less than 1.75" if loss >= 1.75 else 0)
PYTHON
