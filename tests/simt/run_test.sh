#!/usr/bin/env bash
# run_test.sh LOCKSTEP TIER: compares the program on the simulated GPU (a lockstep that is linked with
# tests/simt) with the CPU. Losses, text and evaluation are the same. A run in two parts has the bits of an
# uninterrupted run, because it recorded its matmul algorithms; so has a run without CUDA graphs. TIER is ci
# or full, which adds fp8 matmuls, rows of masked data, a run that does not fit, and records of algorithms
# that are damaged or of another library.
set -euo pipefail
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
. "$tests/wording.sh"
lockstep=$(realpath "$1") tier=$2
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

train() { "$lockstep" train tiny.toml --run "$1" --device "$2" --extend "${@:3}" >"$1.out" 2>&1 || { cat "$1.out"; exit 1; }; }

# same_bits RUN RUN, other_bits RUN RUN: compare the last checkpoints
last=checkpoints/step-00000006/rank-00000.safetensors
same_bits() { cmp {"$1","$2"}/$last || { echo "$1 and $2 have other bits"; exit 1; }; }
other_bits() { ! cmp -s {"$1","$2"}/$last || { echo "$1 and $2 have the same bits"; exit 1; }; }

NVIDIA_TF32_OVERRIDE=1 train gpu cuda  # tests/simt/cublas.cpp computes nothing if it is set
train cpu cpu
says gpu.out products.measured
says gpu.out products.memory
says gpu.out products.cleared variable=NVIDIA_TF32_OVERRIDE=1
grep -A1 '"cleared_variables"' gpu/numerics.json | grep -q NVIDIA_TF32_OVERRIDE
[[ ! -e cpu/numerics.json ]]

# From here on, the fastest algorithm is not the one that a run began with (tests/simt/cublas.cpp).
export LOCKSTEP_SIMT_FASTEST=2
train whole cuda --set schedule.kind=constant
train parts cuda --set train.steps=3 --set schedule.kind=constant
cp -r parts measured
rm parts/numerics.json  # the checkpoint has it
export LOCKSTEP_SIMT_FASTEST=1
train parts cuda --set schedule.kind=constant
says parts.out products.recorded record=parts/checkpoints/step-00000003
same_bits parts whole
cmp {parts,whole}/numerics.json
train parts cuda --set train.steps=7 --set schedule.kind=constant  # from a checkpoint of the resumed run
says parts.out products.recorded record=parts/checkpoints/step-00000006
cmp {parts,whole}/numerics.json

# A run with the record of another run has the bits of that run.
mkdir copy
cp whole/numerics.json copy
train copy cuda --set schedule.kind=constant
says copy.out products.recorded record=copy/numerics.json
same_bits copy whole

# CUDA graphs change no bit.
mkdir eager
cp whole/numerics.json eager
train eager cuda --set schedule.kind=constant --set train.cuda_graphs=off
same_bits eager whole

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

for device in cpu cuda; do
  "$lockstep" generate gpu --prompt "line" --tokens 12 --device $device >$device.text 2>/dev/null
  "$lockstep" eval gpu --data held_out --device $device 2>/dev/null |
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["loss_nats"], 4))' >$device.loss
done
cmp cpu.text cuda.text
cmp cpu.loss cuda.loss

# Attention by cuDNN: a run reports it, and rejects settings that it does not support.
attention() {
  local run=$1
  shift
  train "$run" cuda --set train.steps=1 --set precision.compute=bf16 --set model.head_size=64 "$@"
  grep -o '"attention": *"[^"]*"' "$run"/checkpoints/step-00000001/manifest.json | cut -d'"' -f4
}
expect() { [[ $2 == "$3" ]] || { echo "$1: '$2', expected '$3'"; exit 1; }; }
expect auto "$(attention auto)" "cuDNN simulated"
says auto.out attention.cudnn version=simulated
expect own "$(attention own --set train.attention=own)" "own kernels"
expect documents "$(attention documents --set data.document_mask=true)" "own kernels"
says documents.out attention.own key=data.document_mask
status=0
"$lockstep" train tiny.toml --run refused --device cuda --set train.attention=cudnn >refused.out 2>&1 || status=$?
expect "fp32 and cuDNN" "$status" 78
grep -q "train.attention.*precision.compute" refused.out

[[ $tier == full ]] || exit 0

# Fp8 matmuls: a resumed run quantizes the weights that it loaded. Offloading of master weights and moments
# changes no bit of the run or of a checkpoint.
fp8=(--set precision.compute=bf16 --set precision.fp8=tensor --set schedule.kind=constant)
train fp8 cuda "${fp8[@]}"
says fp8.out train.computes types="bf16 and fp8" device="simulated GPU"
mkdir fp8_parts
cp fp8/numerics.json fp8_parts
train fp8_parts cuda "${fp8[@]}" --set train.steps=3
train fp8_parts cuda "${fp8[@]}" --set train.steps=4 --set train.offload_optimizer=true
says fp8_parts.out train.memory_of_host
train fp8_parts cuda "${fp8[@]}"
same_bits fp8_parts fp8
other_bits whole fp8
train from_fp8 cuda "${fp8[@]}" --set train.init_from=fp8 --set train.offload_optimizer=true
says from_fp8.out train.given_weights checkpoint="$PWD/fp8/checkpoints/step-00000006"
mkdir fp8_again
cp from_fp8/numerics.json fp8_again
train fp8_again cuda "${fp8[@]}" --set train.init_from=fp8
same_bits from_fp8 fp8_again
status=0
"$lockstep" train tiny.toml --run fp8_refused --device cuda "${fp8[@]}" --set train.micro_batch=1 \
  --set train.sequence_length=24 >fp8_refused.out 2>&1 || status=$?
[[ $status == 78 ]]
says fp8_refused.out fp8.micro_batch count=2

# A phase with longer sequences begins again in the process, and so does a run whose settings are changed
# while it trains. Both compute what a CPU computes.
for device in cpu cuda; do
  { cat tiny.toml; printf '[[phase]]\nfrom_step = 3\ntrain.sequence_length = 48\n'; } >phases.toml
  "$lockstep" train phases.toml --run phases_$device --device $device >phases_$device.out 2>&1
done
"$lockstep" train tiny.toml --run live_cuda --device cuda --set train.steps=60 >live_cuda.out 2>&1 &
until [[ -s live_cuda/metrics.jsonl ]]; do sleep 0.2; done
"$lockstep" ctl live_cuda set optimizer.learning_rate=1e-3 --at 30
wait $!
{ cat tiny.toml; printf '[[phase]]\nfrom_step = 30\noptimizer.learning_rate = 1e-3\n'; } >live.toml
"$lockstep" train live.toml --run live_cpu --device cpu --set train.steps=60 >live_cpu.out 2>&1
python3 - <<'PYTHON'
import json

for name, steps in ("phases", 6), ("live", 60):
    gpu, cpu = ([json.loads(line) for line in open(f"{name}_{device}/metrics.jsonl")] for device in ("cuda", "cpu"))
    assert len(gpu) == len(cpu) == steps, (name, len(gpu), len(cpu))
    for a, b in zip(gpu, cpu):
        for key in "loss", "learning_rate", "tokens_seen":
            assert abs(a[key] - b[key]) <= 1e-3 * abs(b[key]), (name, a["step"], key, a[key], b[key])
PYTHON

# data.rows = "auto" is the same on both devices: windows of masked data without documents. A run that began
# on one device resumes on the other.
mkdir llmq
python3 - <<'PYTHON'
import struct

n = 1999
header = b"BIN.TOK\n" + struct.pack("<5i", 2, 4, n, 257, 1)
tokens = [(7 * i * i + i) % 257 for i in range(n)]
masks = bytes((37 * i) % 256 for i in range((n - 1) // 8)) + b"\x05"
open("llmq/q.bin", "wb").write(header.ljust(1023, b"*") + b"\n" + struct.pack(f"<{n}i", *tokens) + masks)
PYTHON
for device in cuda cpu; do
  train llmq_$device $device --set data.train=llmq --set schedule.kind=constant --set train.steps=3
  train llmq_$device cuda --set data.train=llmq --set schedule.kind=constant
  grep -q '"rows": *"windows"' llmq_$device/$(dirname $last)/manifest.json
done

# The error of a run that does not fit names settings that fit, and they do.
export LOCKSTEP_SIMT_MIB=1059  # 1 GiB is kept for libraries, 32 MiB are cuBLASLt's
deep=(--set model.layers=6 --set model.width=64 --set model.mlp_width=64 --set precision.compute=bf16)
deep+=(--set train.micro_batch=1 --set train.recompute=block --set train.steps=1 --set eval.every_steps=0)
status=0
"$lockstep" train tiny.toml --run deep --device cuda "${deep[@]}" >deep.out 2>&1 || status=$?
[[ $status == 78 ]]
says deep.out memory.remedy settings='train.offload_optimizer = true' memory=34.
"$lockstep" train tiny.toml --run deep --device cuda "${deep[@]}" --set train.cuda_graphs=on \
  >deep.out 2>&1 && exit 1
says deep.out memory.remedy settings='train.offload_optimizer = true and train.cuda_graphs = "auto"'
train deep cuda "${deep[@]}" --set train.offload_optimizer=true
unset LOCKSTEP_SIMT_MIB

# Another version of the library: algorithms are measured again, the bits differ, and the run reports it.
LOCKSTEP_SIMT_CUBLASLT=130001 train measured cuda --set schedule.kind=constant
says measured.out products.other_library step=00000003 recorded=130000 version=130001
says measured.out products.measured
other_bits measured whole

# Records that are damaged or of another GPU.
mkdir damaged
echo '{"device": ' >damaged/numerics.json
train damaged cuda --set train.steps=1
grep -qF "damaged/numerics.json: " damaged.out
says damaged.out products.measured
rm -r damaged/checkpoints
sed -i '0,/": "5/s//": "f/' damaged/numerics.json  # the algorithm of the first matmul
train damaged cuda --set train.steps=1
says damaged.out products.not_taken
says damaged.out products.measured_one
rm -r damaged/checkpoints
sed -i 's/simulated GPU/NVIDIA H200/' damaged/numerics.json
train damaged cuda --set train.steps=1
says damaged.out products.other_gpu record=damaged/numerics.json recorded="NVIDIA H200" gpu="simulated GPU"
