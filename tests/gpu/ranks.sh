#!/usr/bin/env bash
# The first checks on a host with several GPUs; the last one needs two such hosts. run.sh has the tests for one
# GPU. The build is that of the preset cuda. All output is in build/ranks.
#
#   tests/gpu/ranks.sh [--hosts FILE] [--dry-run] [PART...]
#     memory    two steps in three layouts: what NCCL took of GPU memory and time, by group, against the
#               formula of dist/nccl_memory.h; free memory before, and the least during the run
#     overlap   nsys: gaps between pack, collective and sum on the streams of communication, and how long
#               matmuls run in these gaps (ranks.py)
#     path      whether groups use copy engines or kernels: lines of NCCL, and streams in nsys
#     chunks    steps with tensor ranks and layout.tensor_chunks = 1, 2 and 4
#     kill      a rank is killed in a step: seconds until the last one is gone (most: 10), and the words
#     across    all-to-all of one rank per host, by message size; FILE is a host file of mpirun
#               (launch/cluster/mpirun.sh)
#
# --dry-run: with ranks on CPUs (preset cpu) and a made-up trace. It tests this script without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. tests/wording.sh
device=cuda hosts=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --hosts) hosts=${2:?file}; shift ;;
    --dry-run) device=cpu ;;
    *) echo "$0: unknown option $1" >&2; exit 64 ;;
  esac
  shift
done
all_parts=(memory overlap path chunks kill across)
parts=("$@")
((${#parts[@]})) || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || { echo "$0: unknown part $part" >&2; exit 64; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [[ $device == cuda ]]; then
  lockstep=build/cuda/lockstep work=build/ranks
  ranks=$(nvidia-smi -L | wc -l)
  ((ranks > 1)) || { echo "$0: nvidia-smi lists $ranks GPUs, expected several" >&2; exit 1; }
  nsys=$(command -v nsys || compgen -G '/opt/nvidia/nsight-systems/*/bin/nsys' | tail -n 1)
else
  lockstep=build/cpu/lockstep work=build/ranks_dry_run ranks=4 nsys=
fi
command -v mpirun >/dev/null || { echo "skipped: mpirun is not installed (openmpi-bin)"; exit 77; }
rm -rf "$work" && mkdir -p "$work"
# sized REAL DRY: the size for this device
sized() { if [[ $device == cuda ]]; then echo "$1"; else echo "$2"; fi; }

# check NAME COMMAND...: one test; exit code 77 means skipped. Prints its output.
check() {
  local name=$1 begin=$SECONDS status
  shift
  "$@" >"$work/$name.out" 2>&1
  status=$?
  tail -n 60 "$work/$name.out"
  case $status in
    0) ((++passed)); echo "passed   $name, $((SECONDS - begin)) s" ;;
    77) ((++skipped)); echo "skipped  $name" ;;
    *) ((++failed)); echo "FAILED   $name (exit $status), $((SECONDS - begin)) s" ;;
  esac
}

# train NAME STEPS OPTION...: layers of Llama 3 8B on bytes, on all ranks; the log is $work/NAME.log. Each
# rank writes its process id. If `profile` is set, it is the command under which rank 0 runs.
train() {
  local name=$1 steps=$2 shape
  shift 2
  if [[ $device == cuda ]]; then
    shape=(--set model.layers=4 --set model.vocabulary=257 --set train.batch_tokens=$((8192 * ranks)))
  else
    shape=(--set model.layers=3 --set model.width=64 --set model.heads=8 --set model.kv_heads=8
      --set model.head_size=8 --set model.mlp_width=128 --set model.vocabulary=257 --set train.threads=1
      --set model.max_positions=32 --set train.sequence_length=32 --set train.batch_tokens=$((32 * ranks)))
  fi
  rm -f "$work"/pid.*
  # shellcheck disable=SC2016
  mpirun -n "$ranks" --bind-to none --oversubscribe sh -c '
    echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"
    [ "$OMPI_COMM_WORLD_RANK" = 0 ] || profile=
    exec $profile "$@"' "$work" \
    "$lockstep" train configs/llama3_8b.toml --run "$work/$name" --device "$device" "${shape[@]}" \
    --set data.train="$work/data" --set data.validation=[] --set data.document_mask=false \
    --set train.steps="$steps" --set checkpoint.every_steps=0 --set log.every_steps=1 --set schedule.warmup_steps=0 "$@" \
    >"$work/$name.log" 2>&1 </dev/null
}
export profile=

pack() {
  [[ -e $work/data ]] ||
    find kernels model train docs -name '*.cpp' -o -name '*.md' | sort | xargs cat |
    "$lockstep" data pack - --out "$work/data"
}

part_memory() {
  check packs pack
  local most=$((ranks < 8 ? ranks : 8))
  check fsdp layout fsdp --set layout.shard="$ranks"
  check hsdp layout hsdp --set layout.shard=$((ranks / 2)) --set layout.replicate=2
  check tensor layout tensor --set layout.tensor="$most" --set layout.shard=$((ranks / most))
}
# layout NAME OPTION...
layout() {
  local name=$1 free=$work/$1.free status sampler=''
  if [[ $device == cuda ]]; then
    nvidia-smi --query-gpu=index,memory.free --format=csv,noheader,nounits -lms 100 >"$free" &
    sampler=$!
    sleep 1
  fi
  train "$name" 2 "${@:2}"
  status=$?
  [[ -z $sampler ]] || kill "$sampler"
  ((status == 0)) || { tail -n 20 "$work/$name.log"; return 1; }
  [[ $device == cuda ]] || return 0
  awk -F ', ' '!($1 in first) { first[$1] = least[$1] = $2 } $2 < least[$1] { least[$1] = $2 }
    END { for (gpu in first) print "GPU " gpu ": " first[gpu] " MiB free before, at least " least[gpu] }' \
    "$free" | sort
  grep 'NCCL took' "$work/$name.log"
  (says "$work/$name.log" launch.nccl_took)
}

# trace: a few steps under FSDP with NCCL's lines about its choices, and of rank 0 a trace in $work/trace.csv
trace() {
  if [[ $device == cpu ]]; then
    cp tests/gpu/ranks_trace.csv "$work/trace.csv"
    echo 'h:1:1 [0] NCCL INFO AllGather [Copy Engine]: 8 Bytes -> cudaMemcpy' >"$work/traced.log"
    return
  fi
  [[ ! -e $work/traced.log ]] || return 0
  pack || return
  [[ -z $nsys ]] || profile="$nsys profile --trace=cuda --sample=none --cpuctxsw=none \
    --force-overwrite=true --output=$work/trace"
  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING train traced 6 --set layout.shard="$ranks"
  local status=$?
  profile=
  ((status == 0)) || { tail -n 20 "$work/traced.log"; return 1; }
  [[ -z $nsys ]] || "$nsys" stats --report cuda_gpu_trace --format csv --force-export=true --output - \
    "$work/trace.nsys-rep" >"$work/trace.csv"
}
part_overlap() { check gaps analyzed overlap; }
part_path() {
  check lines_of_nccl lines_of_nccl
  check streams analyzed path
}
analyzed() {  # WHAT
  trace || return
  [[ -e $work/trace.csv ]] ||
    { echo "nsys is not installed (nsight-systems-cli of the repository of CUDA)"; return 77; }
  python3 -B tests/gpu/ranks.py "$1" "$work/trace.csv"
}
# The first rank of each group prints a line for each collective: [Copy Engine] (NCCL 2.30 or newer),
# [Symmetric] or Algo (kernels). NCCL prints no line for an all-to-all by its send and receive kernel, and
# NCCL 2.28 none for copy engines: then only the streams of nsys tell.
lines_of_nccl() {
  trace || return
  grep -o 'NCCL INFO .* Bytes -> .*' "$work/traced.log" | sort | uniq -c | sort -rn | grep .
}

part_chunks() {
  pack || return
  for chunks in 1 2 4; do check "chunks_$chunks" chunked "$chunks"; done
}
chunked() {
  local most=$((ranks < 8 ? ranks : 8))
  train "chunks_$1" 6 --set layout.tensor="$most" --set layout.shard=$((ranks / most)) \
    --set layout.tensor_chunks="$1" || { tail -n 20 "$work/chunks_$1.log"; return 1; }
  grep -E '^step [456]/' "$work/chunks_$1.log"
}

part_kill() { check a_killed_rank_ends_all killed; }
killed() {
  pack >/dev/null || return
  local last=$((ranks - 1)) begin job pid alive deadline=$((SECONDS + 300))
  # mpirun must not end the other ranks in place of Lockstep: it waits longer than the limit.
  OMPI_MCA_odls_base_sigkill_timeout=$(sized 15 3) train killed 1000000 --set layout.shard="$ranks" &
  job=$!
  until [[ $({ wc -l <"$work/killed/metrics.jsonl"; } 2>/dev/null) -ge 3 ]]; do
    sleep 0.2
    { kill -0 "$job" 2>/dev/null && ((SECONDS < deadline)); } ||
      { tail -n 20 "$work/killed.log"; return 1; }
  done
  sleep 2  # ranks report their steps to each other once a second
  begin=$(date +%s%N)
  kill -KILL "$(cat "$work/pid.$last")"
  alive=1
  while ((alive && $(date +%s%N) - begin < 60000000000)); do
    sleep 0.05
    alive=0
    for pid in "$work"/pid.*; do
      # mpirun is late to reap zombies.
      grep -qs '^State:.[^Z]' "/proc/$(cat "$pid")/status" && alive=1
    done
  done
  local took=$((($(date +%s%N) - begin) / 1000000))
  grep -E 'error: |NCCL' "$work/killed.log" | sort -u | cut -c -300
  echo "rank $last was killed; the last rank was gone after $took ms (most: 10000)"
  for pid in "$work"/pid.*; do kill -KILL "$(cat "$pid")" 2>/dev/null; done
  wait "$job"
  (says "$work/killed.log" end.rank rank="$last" end.died) || return
  ((took <= 10000))
}

part_across() {
  if [[ $device == cpu ]]; then
    echo '{"links": [{"collective": "all_to_all", "ranks": 2, "domains": 2, "beside": true, "times":
      [{"bytes": 32768, "seconds": 1e-5}, {"bytes": 2097152, "seconds": 8e-5}]}]}' >"$work/cluster.json"
    check messages python3 -B tests/gpu/ranks.py across "$work/cluster.json" 2
  elif [[ -z $hosts ]]; then
    ((++skipped))
    echo "skipped  across: name two hosts by --hosts FILE"
  else
    check preflight launch/cluster/mpirun.sh "$hosts" "$lockstep" preflight --device cuda --scratch "$work" \
      --cluster-out "$work/cluster.json"
    check messages python3 -B tests/gpu/ranks.py across "$work/cluster.json" 2
  fi
}

total_failed=0
for part in "${parts[@]}"; do
  passed=0 failed=0 skipped=0
  echo "== $part"
  "part_$part"
  echo "$part: $passed passed, $failed failed, $skipped skipped"
  ((total_failed += failed))
done
((total_failed == 0))
