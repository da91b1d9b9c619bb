#!/usr/bin/env bash
# preflight_test.sh LOCKSTEP NVML TIER: `lockstep preflight` on the simulated GPU. A stand-in for NVML (nvml.cpp) in the
# directory NVML reports the GPU as healthy, hot or faulty. TIER is ci or full, which adds a faulty GPU, failing calls of
# NVML, and other clusters.
set -euo pipefail
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
. "$tests/wording.sh"
lockstep=$(realpath "$1") nvml=$(realpath "$2") tier=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export LOCKSTEP_SIMT_MIB=1280  # preflight measures a part of the memory

cat >tiny.toml <<'TOML'
[model]
family = "gpt2"
layers = 1
width = 32
heads = 2
vocabulary = 257
max_positions = 32
[train]
steps = 6
batch_tokens = 32
sequence_length = 32
micro_batch = 1
[data]
train = "data"
TOML

# preflight NAME CODE LIBRARIES OPTION...
preflight() {
  local status=0
  LD_LIBRARY_PATH=$3 "$lockstep" preflight tiny.toml --device cuda --threads 1 \
    --cluster-out "$1.json" --baseline "$1.baseline" "${@:4}" >"$1.out" 2>&1 || status=$?
  [[ $status == "$2" ]] || { echo "$1: exit $status, expected $2"; cat "$1.out"; exit 1; }
}

LOCKSTEP_NVML=well preflight well 0 "$nvml"
says well.out preflight.well
[[ -s well.json && -s well.baseline ]] || { echo "what is well was not written"; exit 1; }
preflight hot 75 "$nvml"
says hot.out preflight.of_gpu gpu=0 preflight.of_rank rank=0 check.causes gpu.heat preflight.at_most most=0
[[ ! -e hot.json && ! -e hot.baseline ]] || { echo "a faulty cluster was written"; exit 1; }
if [[ $tier == full ]]; then
  LOCKSTEP_NVML=ill preflight ill 75 "$nvml"
  says ill.out check.ecc preflight.at_most found=2 most=0
  says ill.out check.rows preflight.at_most found=1 most=0
  says ill.out check.nvlinks preflight.at_most found=1 most=0
  LOCKSTEP_NVML=lost preflight lost 75 "$nvml"
  while read -r check call; do
    says lost.out "$check" preflight.not_measured preflight.nvml_says call="$call" error="GPU is lost"
  done <<'END'
check.clock nvmlDeviceGetClockInfo
check.causes nvmlDeviceGetCurrentClocksEventReasons
check.ecc nvmlDeviceGetTotalEccErrors
check.rows nvmlDeviceGetRemappedRows
check.nvlinks nvmlDeviceGetNvLinkState
END
  LOCKSTEP_NVML=no_causes preflight untold 75 "$nvml"
  says untold.out check.causes preflight.not_measured preflight.nvml_says call=nvmlDeviceGetCurrentClocksEventReasons
  LOCKSTEP_NVML=errors preflight uncounted 0 "$nvml"
  LOCKSTEP_NVML=unjoined preflight unjoined 0 "$nvml"  # a single GPU needs no NVLink
fi

# The cluster file of the configuration sets the limits; one that preflight wrote adds nothing to the table.
cat >slow.toml <<'TOML'
name = "slow"
ranks_per_node = 1
[hardware]
name = "simulated GPU"
bf16_flops = 1e6
fp32_flops = 1e6
multiprocessors = 4
hbm_bytes_per_second = 1e4
hbm_bytes = 1_342_177_280
nvlink_bytes_per_second = 1e4
nic_bytes_per_second = 1e4
host_bytes_per_second = 1e4
domain_ranks = 1
TOML
sed 's/^host_bytes.*/host_bytes_per_second = 1e17/' slow.toml >fast.toml
export LOCKSTEP_NVML=well
preflight fast 75 "$nvml" --set plan.cluster=fast.toml
says fast.out check.host_copy preflight.at_least least="94000 TB/s"
preflight missing 78 "$nvml" --set plan.cluster=nowhere.json
if [[ $tier == full ]]; then
  preflight slow 0 "$nvml" --set plan.cluster=slow.toml
  python3 - <<'PYTHON'
import json
slow = json.load(open("slow.json"))["hardware"]
assert slow["hbm_bytes_per_second"] > 1e6 and slow["host_bytes_per_second"] > 1e6, slow  # as measured
assert slow["nic_bytes_per_second"] == 1e4 and slow["bf16_flops"] == 1e6, slow  # as it was described
PYTHON
  preflight again 0 "$nvml" --set plan.cluster=again.json  # the file does not exist yet
  rm again.baseline  # the speed of the second run does not matter
  preflight again 0 "$nvml" --set plan.cluster=again.json
  mkdir none
  LOCKSTEP_NVML='' preflight without 75 "$PWD/none"
  says without.out check.clock preflight.not_measured preflight.no_such_gpu
fi
unset LOCKSTEP_NVML

python3 - <<'PYTHON'
import json
cluster = json.load(open("well.json"))
assert cluster["device"] == "cuda" and cluster["nodes"] == 1 and cluster["ranks_per_node"] == 1, cluster
assert cluster["hardware"]["name"] == "simulated GPU" and cluster["hardware"]["hbm_bytes"] == 1280 << 20
assert cluster["launch_seconds"] > 0 and cluster["constant_bytes"] >= 1 << 30  # what a run leaves free
assert cluster["host_memory_bytes"] > 1 << 30
assert {"matmul_forward", "layernorm_forward"} <= {one["operator"] for one in cluster["operators"]}
PYTHON

# A plan for the cluster has the memory of GPU and host that a run reports, to three digits.
for i in {1..200}; do echo "line $i of a text"; done >text
"$lockstep" data pack text --out data >/dev/null 2>&1
for offloads in false true; do
  set=(--set precision.compute=bf16 --set train.recompute=block --set train.offload_optimizer=$offloads
       --set train.offload_activations=$offloads --set model.layers=4 --set train.steps=1 --set schedule.warmup_steps=0)
  "$lockstep" plan tiny.toml --cluster well.json --check --json "${set[@]}" >plan.json
  "$lockstep" train tiny.toml --run run-$offloads --device cuda "${set[@]}" --set train.threads=1 >train.out 2>&1 ||
    { cat train.out; exit 1; }
  python3 -B - "$tests" <<'PYTHON'
import json, re, sys
sys.path.insert(0, sys.argv[1])
from wording import pattern
plan = json.load(open("plan.json"))
assert plan["constants_measured"] and plan["missing_host_bytes"] == 0, plan
log = open("train.out").read()
two = r"(\S+ \S+)"
said = re.search(pattern("train.memory", memory=two) + ", " + pattern("train.memory_of_host", memory=two), log)
device = sum(part["bytes"] for part in plan["memory"] if part["name"] != "constants")
host = sum(part["bytes"] for part in plan["host_memory"])
units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
for text, planned in zip(said.groups(), (device, host)):
    number, unit = text.split()
    assert abs(float(number) * units[unit] - planned) <= 0.005 * planned, f"train says {text}, plan {planned}: {plan}"
PYTHON
done
