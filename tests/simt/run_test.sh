#!/usr/bin/env bash
# run_test.sh LOCKSTEP: the program on the simulated GPU (a lockstep that is linked with tests/simt)
# against the CPU: the same losses, text and evaluation; and a run in two parts has the same bits, as has one without
# CUDA graphs.
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
train eager cuda --set schedule.kind=constant --set train.cuda_graphs=off

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
cmp whole/$last eager/$last || { echo "a run without CUDA graphs has other bits"; exit 1; }

for device in cpu cuda; do
  "$lockstep" generate gpu --prompt "line" --tokens 12 --device $device >$device.text 2>/dev/null
  "$lockstep" eval gpu --data held_out --device $device 2>/dev/null |
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["loss_nats"], 4))' >$device.loss
done
cmp cpu.text cuda.text
cmp cpu.loss cuda.loss
