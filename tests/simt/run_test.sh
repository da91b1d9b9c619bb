#!/usr/bin/env bash
# run_test.sh LOCKSTEP: the program on the simulated GPU (a lockstep that is linked with tests/simt)
# against the CPU: the same losses, text and evaluation; and a run in two parts has the same bits.
set -euo pipefail
lockstep=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >tiny.toml <<'TOML'
[model]
family = "llama3"
layers = 2
width = 32
heads = 2
kv_heads = 1
mlp_width = 48
vocabulary = 257
max_positions = 64
[train]
steps = 6
batch_tokens = 96
sequence_length = 32
micro_batch = 2
[optimizer]
learning_rate = 3e-3
[schedule]
warmup_steps = 1
[data]
train = "data"
validation = "held_out"
[eval]
every_steps = 4
tokens = 128
[checkpoint]
every_steps = 3
[precision]
compute = "fp32"
TOML
for i in {1..200}; do echo "line $i of a text, and $((i * i)) is its square"; done >text
"$lockstep" data pack text --out data >/dev/null 2>&1
head -c 400 text | "$lockstep" data pack - --out held_out >/dev/null 2>&1

train() { "$lockstep" train tiny.toml --run "$1" --device "$2" "${@:3}" >"$1.out" 2>&1 || { cat "$1.out"; exit 1; }; }
train gpu cuda
train cpu cpu
train parts cuda --set train.steps=3 --set schedule.kind=constant
train parts cuda --set schedule.kind=constant
train whole cuda --set schedule.kind=constant

python3 - <<'PYTHON'
import json

def steps(run):
    return [json.loads(line) for line in open(f"{run}/metrics.jsonl")]

gpu, cpu = steps("gpu"), steps("cpu")
assert [s["step"] for s in gpu] == [1, 2, 3, 4, 5, 6], gpu
for a, b in zip(gpu, cpu):
    for key in "loss", "grad_norm", "learning_rate", "tokens_seen", "validation_loss":
        assert (key in a) == (key in b), (key, a, b)
        if key in a and a[key] is not None:
            assert abs(a[key] - b[key]) <= 1e-4 * abs(b[key]), (key, a[key], b[key])
PYTHON
last=checkpoints/step-00000006/rank-00000.safetensors
cmp whole/$last parts/$last || { echo "a run in two parts has other bits"; exit 1; }

for device in cpu cuda; do
  "$lockstep" generate gpu --prompt "line" --tokens 12 --device $device >$device.text 2>/dev/null
  "$lockstep" eval gpu --data held_out --device $device 2>/dev/null |
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["loss_nats"], 4))' >$device.loss
done
cmp cpu.text cuda.text
cmp cpu.loss cuda.loss

# Attention by cuDNN: what a run says of it, and where it cannot be.
attention() {
  local run=$1
  shift
  train "$run" cuda --set train.steps=1 --set precision.compute=bf16 --set model.head_size=64 "$@"
  grep -o '"attention": *"[^"]*"' "$run"/checkpoints/step-00000001/manifest.json | cut -d'"' -f4
}
expect() { [[ $2 == "$3" ]] || { echo "$1: '$2', expected '$3'"; exit 1; }; }
expect auto "$(attention auto)" "cuDNN simulated"
grep -q "attention by cuDNN simulated" auto.out
expect own "$(attention own --set train.attention=own)" "own kernels"
expect documents "$(attention documents --set data.document_mask=true)" "own kernels"
grep -q "own kernels, not cuDNN: data.document_mask is set" documents.out
status=0
"$lockstep" train tiny.toml --run refused --device cuda --set train.attention=cudnn >refused.out 2>&1 || status=$?
expect "fp32 and cuDNN" "$status" 78
grep -q "train.attention is cudnn, but precision.compute is not bf16" refused.out
