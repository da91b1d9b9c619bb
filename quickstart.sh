#!/usr/bin/env bash
# Trains a model from a fresh clone: installs missing packages, builds, packs a text, trains a small
# byte-level model for about two minutes, evaluates it and generates text.
#
#   ./quickstart.sh              on an English dictionary (Debian's dict-gcide, 14 MB to download)
#   ./quickstart.sh TEXT...      on your own text files, or directories of them
#
# QUICKSTART_SECONDS   how long to train (default 120)
#
# All files stay in this directory: datasets/quickstart, runs/quickstart. An earlier run is renamed.
# Exits with 75 if packages are missing and only root may install them, with 65 if there is no text.
set -euo pipefail
texts=()
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) echo "$0: unknown option $argument; --help lists the options" >&2; exit 64 ;;
  esac
  [[ -e $argument ]] || { echo "$0: $argument: no such file or directory" >&2; exit 65; }
  texts+=("$(realpath "$argument")")
done
cd "$(dirname "${BASH_SOURCE[0]}")"
. scripts/packages.sh
. scripts/dictionary.sh

seconds=${QUICKSTART_SECONDS:-120}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "QUICKSTART_SECONDS: expected a positive integer, got $seconds" >&2; exit 64; }
held_out=524288  # bytes to evaluate, of 1.8 million; takes less than half a minute
((seconds < 60)) && held_out=131072
name=quickstart
((${#texts[@]})) && name=quickstart-text
dataset=datasets/$name
run=runs/$name

say() { printf '\n== %s\n' "$*"; }

# The CUDA preset only if there is a GPU.
preset=cpu
options=()
if command -v nvcc >/dev/null && nvidia-smi >/dev/null 2>&1; then
  preset=cuda
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  ((capability >= 90)) && capability+=a
  options=(-DLOCKSTEP_CUDA_ARCHITECTURES="$capability")  # of the first GPU
fi
lockstep=build/$preset/lockstep

# progress: on a terminal, shows the last "[12/340]" of a build on one line.
progress() {
  if [[ ! -t 1 ]]; then cat >/dev/null; return; fi
  awk '/^\[[0-9]+\/[0-9]+\]/ { printf "\r%s ", $1; fflush() } END { print "" }'
}

build() {
  local log=build/$preset/build.log
  mkdir -p "build/$preset"
  installed libgtest-dev || options+=(-DLOCKSTEP_TESTS=OFF)
  if ! { cmake --preset "$preset" "${options[@]}" &&
         cmake --build --preset "$preset" --target lockstep; } 2>&1 | tee "$log" | progress; then
    tail -n 60 "$log"
    echo "the build failed; the full log is $log" >&2
    exit 1
  fi
}

# split_own_texts: runs each time, because the files may have changed.
split_own_texts() {
  python3 scripts/hold_out.py "$dataset/source" "${texts[@]}"
  rm -f "$dataset/complete"
}

# pack_text: packs the files of $dataset/source once. An interrupted pack starts again.
pack_text() {
  [[ -f $dataset/complete ]] && return
  local part
  for part in train validation; do
    rm -rf "${dataset:?}/$part"
    "$lockstep" data pack "$dataset/source/$part.txt" --out "$dataset/$part"
  done
  touch "$dataset/complete"
}

# train RUN KEY=VALUE...
train() {
  local directory=$1 settings=() setting
  shift
  for setting in "data.train=$dataset/train" "data.validation=$dataset/validation" \
    "$@"; do
    settings+=(--set "$setting")
  done
  "$lockstep" train configs/quickstart.toml --run "$directory" "${settings[@]}"
}

# measured_step_seconds: prints the step time of a short run: the median of the fastest of three
# stretches, because the host may be busy for a moment.
measured_step_seconds() {
  local trial
  trial=$(mktemp -d "runs/.measure.XXXXXX")
  if ! train "$trial/run" train.steps=29 eval.every_steps=0 checkpoint.every_steps=0 \
    eval.tokens=1536 log.tensorboard=false >"$trial/said" 2>&1; then
    cat "$trial/said" >&2
    rm -rf "$trial"
    return 1
  fi
  python3 - "$trial/run/metrics.jsonl" <<'PYTHON'
import json, statistics, sys
steps = [json.loads(line)["step_seconds"] for line in open(sys.argv[1])]
print(f"{min(statistics.median(steps[i:i + 8]) for i in (5, 13, 21)):.6f}")
PYTHON
  rm -rf "$trial"
}

# keep_earlier_run: renames an earlier run to the next free number.
keep_earlier_run() {
  local number=1
  [[ -e $run ]] || return 0
  while [[ -e $run.$number ]]; do ((++number)); done
  mv "$run" "$run.$number"
  echo "the run before this one is now $run.$number"
}

# expected_loss STEPS: prints the loss of held-out text of the dictionary that such a run reaches, between
# measured runs of 20 to 1404 steps.
expected_loss() {
  awk -v n="$1" 'BEGIN {
    count = split("20 100 300 600 1404", steps)
    split("2.90 2.41 2.01 1.76 1.558", loss)
    for (i = 1; i < count - 1 && n > steps[i + 1]; i++) ;
    power = log(loss[i + 1] / loss[i]) / log(steps[i + 1] / steps[i])
    printf "%.2f\n", loss[i] * (n / steps[i]) ^ power
  }'
}

need_packages "${build_packages[@]}" "${script_packages[@]}"

say "text"
if ((${#texts[@]})); then split_own_texts; else prepare_dictionary "$dataset/source" "$held_out"; fi

say "building ($preset): takes a few minutes the first time"
build
"$lockstep" --version

say "packing"
pack_text
echo "packed in $dataset"

say "measuring the speed of a step"
mkdir -p runs
step_seconds=$(measured_step_seconds)
steps=$(awk -v total="$seconds" -v step="$step_seconds" \
  'BEGIN { n = int(total / step); print n < 20 ? 20 : n }')
echo "$step_seconds s a step: $steps steps in about $seconds s"
expected=
((${#texts[@]})) || {
  expected=$(expected_loss "$steps")
  echo "expected: a loss of about $expected nats a byte on held-out text"
}

say "training in $run"
keep_earlier_run
train "$run" "train.steps=$steps" || {
  code=$?
  ((code == 130 || code == 75)) &&
    echo "to resume this run: $lockstep train $run/config.toml; $0 starts a new one" >&2
  exit "$code"
}

say "evaluating on held-out text"
"$lockstep" eval "$run" --tokens "$held_out" >"$run/evaluation.json"
loss=$(python3 -c 'import json, sys; print("%.4f" % json.load(sys.stdin)["loss_nats"])' \
  <"$run/evaluation.json")
echo "$loss nats a byte"
level=()
((${#texts[@]})) || {
  counting=$(cat "$dataset/source/byte_model_$held_out.txt")
  level=(--line "$counting" "counting three-byte sequences")
}
python3 scripts/loss_curve.py "$run" "${level[@]}" >"$run/loss.svg"
python3 scripts/loss_curve.py "$run" --text
"$lockstep" report "$run" >/dev/null

say "generating"
"$lockstep" generate "$run" --prompt "${QUICKSTART_PROMPT:-The}" --tokens 250 --temperature 0.7
echo

say "done"
if ((${#texts[@]} == 0)); then
  echo "loss on the first $held_out bytes of held-out text: $loss nats a byte (expected: $expected);" \
    "a count of three-byte sequences reaches $counting"
fi
cat <<END
the model      $run/checkpoints
its metrics    $run/metrics.jsonl (also for TensorBoard: tensorboard --logdir runs)
its report     $run/report.html, a page to open in a browser
its loss curve $run/loss.svg
its settings   $run/config.toml, from configs/quickstart.toml (docs/configuration.md)
its text       $dataset

try next
  $lockstep generate $run --prompt "Ocean" --temperature 0.7
  $lockstep train $run/config.toml --run runs/longer --set train.steps=$((steps * 5))
  $lockstep watch runs/longer                   # in another terminal
  ./quickstart.sh YOUR_TEXT.txt
END
