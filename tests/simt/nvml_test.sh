#!/usr/bin/env bash
# nvml_test.sh LOCKSTEP NVML OLD_NVML: what the program on the simulated GPU says with a stand-in for NVML
# (nvml.cpp) in the directory NVML, with one of an older driver, one that refuses everything, and none.
set -euo pipefail
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

# train RUN LIBRARIES OPTION...: what NVML there is, is in the directory LIBRARIES. Without --device a run
# is on the GPU.
train() {
  LD_LIBRARY_PATH=$2 "$lockstep" train tiny.toml --run "$1" "${@:3}" >"$1.out" 2>&1 ||
    { cat "$1.out"; exit 1; }
}
says() { grep -qF -- "$2" "$1.out" || { echo "expected '$2' in:"; cat "$1.out"; exit 1; }; }
says_not() { ! grep -q -- "$2" "$1.out" || { echo "did not expect '$2' in:"; cat "$1.out"; exit 1; }; }

warning="the clocks of simulated GPU (0000:5A:00.0) are held down by heat (hardware thermal slowdown) at 1755 MHz and 64 C: tokens/s and MFU fall"
train there "$nvml" --set log.every_steps=1 --set train.steps=16
says there "fp32 on simulated GPU"
says there "GPU: simulated GPU (0000:5A:00.0), 16.0 GiB, power limit 700 W, driver 580.65.06; other processes hold 1.50 GiB of it: 4241, 4242"
says there "$warning"
[[ $(grep -c "held down" there.out) == 1 ]] || { echo "the warning is not said once"; cat there.out; exit 1; }

# until_read RUN: goes on until energy was read twice.
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
says old "$warning"
LOCKSTEP_NVML=crowded train crowded "$nvml"
says crowded "other processes hold 1000 B of it: 4241, 4242, 4243"
says crowded ", 4339"
LOCKSTEP_NVML=errors train refusing "$nvml"
says refusing "GPU: simulated GPU (0000:5A:00.0), 16.0 GiB"
says_not refusing "held down\|other processes\|driver\|watts"
mkdir none
train without "$PWD/none"
says_not without "GPU: \|held down\|other processes"

# What a run does not fit beside.
status=0
LD_LIBRARY_PATH=$nvml "$lockstep" train tiny.toml --run large --device cuda --set model.width=16384 \
  --set model.heads=128 >large.out 2>&1 || status=$?
[[ $status == 78 ]] || { echo "exit $status, expected 78"; cat large.out; exit 1; }
says large "are free on this GPU; other processes hold 1.50 GiB of it: 4241, 4242; "

python3 - <<'PYTHON'
import json, pathlib, re

def steps(run):
    return [json.loads(line) for line in open(f"{run}/metrics.jsonl")]

def gpu(step):
    return {key: value for key, value in step.items() if key.startswith("gpu_")}

expected = {"gpu_clock_mhz": 1755, "gpu_power_watts": 612.5, "gpu_temperature_celsius": 64,
            "gpu_power_capped": True, "gpu_slowed_by": "heat (hardware thermal slowdown)"}
def check_energy(run, watts):
    read = [step for step in steps(run) if gpu(step)]
    assert read[0]["energy_joules"] is None and read[0]["joules_per_token"] is None, read[0]
    for before, now in zip(read, read[1:]):
        seconds = now["time_seconds"] - before["time_seconds"]
        joules = now["energy_joules"] * (now["step"] - before["step"])
        # The line is written behind the reading, on a busy machine not at once.
        assert watts * seconds / 1.5 < joules < watts * seconds * 1.5, (run, joules, seconds)
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
