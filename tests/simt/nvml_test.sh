#!/usr/bin/env bash
# nvml_test.sh LOCKSTEP NVML OLD_NVML: the program on the simulated GPU reports the state of its GPU. It runs
# with a stand-in for NVML (nvml.cpp) in the directory NVML, with one of an older driver, with one whose calls
# fail, and with none.
set -euo pipefail
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
. "$tests/wording.sh"
lockstep=$(realpath "$1") nvml=$(realpath "$2") old_nvml=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

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
[log]
every_steps = 4
[checkpoint]
every_steps = 0
TOML
for i in {1..200}; do echo "line $i of a text"; done >text
"$lockstep" data pack text --out data >/dev/null 2>&1

# train RUN LIBRARIES OPTION...: with the NVML of the directory LIBRARIES. Without --device a run is on the
# GPU.
train() {
  LD_LIBRARY_PATH=$2 "$lockstep" train tiny.toml --run "$1" "${@:3}" >"$1.out" 2>&1 ||
    { cat "$1.out"; exit 1; }
}

gpu="simulated GPU (0000:5A:00.0)"
warning=(gpu.held_down gpu="$gpu" mhz=1755 celsius=64)
train there "$nvml" --set log.every_steps=1 --set train.steps=16
says there.out train.computes types=fp32 device="simulated GPU"
says there.out gpu.is gpu="$gpu" memory="16.0 GiB" gpu.power watts=700 gpu.driver version=580.65.06 \
  gpu.others memory="1.50 GiB" processes="4241, 4242"
says there.out "${warning[@]}"
[[ $(grep -cP "$(phrases gpu.held_down)" there.out) == 1 ]] || { echo "the warning is not said once"; cat there.out; exit 1; }

# until_read RUN: trains until energy was read twice.
until_read() {
  LD_LIBRARY_PATH=$nvml "$lockstep" train tiny.toml --run "$1" --set log.every_steps=1 --set train.steps=1000000 \
    >"$1.out" 2>&1 &
  local pid=$! status=0
  until [[ $(grep -c '"energy_joules":[0-9]' "$1/metrics.jsonl" 2>/dev/null) -ge 2 ]]; do
    kill -0 $pid || { cat "$1.out"; exit 1; }
    sleep 0.1
  done
  kill -TERM $pid
  wait $pid || status=$?
  [[ $status == 75 ]] || { echo "exit $status, expected 75"; cat "$1.out"; exit 1; }
}
until_read energy
LOCKSTEP_NVML=pascal until_read power
train old "$old_nvml"
says old.out "${warning[@]}"
LOCKSTEP_NVML=crowded train crowded "$nvml"
says crowded.out gpu.others memory="1000 B" processes="4241, 4242, 4243"
grep -qF ", 4339" crowded.out
LOCKSTEP_NVML=errors train refusing "$nvml"
says refusing.out gpu.is gpu="$gpu" memory="16.0 GiB"
for phrase in gpu.held_down gpu.others gpu.driver gpu.power; do
  says_not refusing.out $phrase
done
mkdir none
train without "$PWD/none"
for phrase in gpu.is gpu.held_down gpu.others; do
  says_not without.out $phrase
done

# The error of a run that does not fit names other processes on the GPU.
status=0
LD_LIBRARY_PATH=$nvml "$lockstep" train tiny.toml --run large --device cuda --set model.width=16384 \
  --set model.heads=128 >large.out 2>&1 || status=$?
[[ $status == 78 ]] || { echo "exit $status, expected 78"; cat large.out; exit 1; }
says large.out memory.free_on_this_gpu gpu.others memory="1.50 GiB" processes="4241, 4242; "

python3 -B - "$tests" <<'PYTHON'
import json, pathlib, re, sys
sys.path.insert(0, sys.argv[1])
from wording import says

def steps(run):
    return [json.loads(line) for line in open(f"{run}/metrics.jsonl")]

def gpu(step):
    return {key: value for key, value in step.items() if key.startswith("gpu_")}

expected = {"gpu_clock_mhz": 1755, "gpu_power_watts": 612.5, "gpu_temperature_celsius": 64,
            "gpu_power_capped": True, "gpu_slowed_by": says("gpu.heat")}
def check_energy(run, watts):
    read = [step for step in steps(run) if gpu(step)]
    assert read[0]["energy_joules"] is None and read[0]["joules_per_token"] is None, read[0]
    for before, now in zip(read, read[1:]):
        seconds = now["time_seconds"] - before["time_seconds"]
        joules = now["energy_joules"] * (now["step"] - before["step"])
        # The line is written after the reading, with a delay on a busy host.
        assert watts * seconds / 2 < joules < watts * seconds * 2, (run, joules, seconds)
        assert abs(now["joules_per_token"] - now["energy_joules"] / 32) < 1e-9, now
    prom = open(f"{run}/metrics.prom").read()
    total = sum(now["energy_joules"] * (now["step"] - before["step"]) for before, now in zip(read, read[1:]))
    said = float(re.search(r"lockstep_gpu_energy_joules_total\{.*\} (.*)", prom)[1])
    assert abs(said - total) < 1e-6 * total, (said, total)
    assert re.search(r'lockstep_gpu_throttled\{run="\w+"\} 1\n', prom), prom

check_energy("energy", 500)
check_energy("power", 100)

there = steps("there")
assert gpu(there[0]) == expected, there[0]
seconds = there[-1]["time_seconds"] - there[0]["time_seconds"]
read = [step["step"] for step in there if gpu(step)]
assert 1 <= len(read) <= seconds + 2 and len(there) == 16, (read, seconds)
assert all(gpu(step) in ({}, expected) for step in there)
assert [step["step"] for step in steps("old") if gpu(step)][0] == 4
assert gpu(steps("old")[3]) == expected
assert not any(gpu(step) for run in ("refusing", "without") for step in steps(run))
for run, tags in ("there", True), ("without", False):
    events = b"".join(path.read_bytes() for path in pathlib.Path(run).glob("events.out.tfevents.*"))
    for tag in b"gpu/clock_mhz", b"gpu/power_watts", b"gpu/temperature_celsius":
        assert (tag in events) == tags, (run, tag)
PYTHON
