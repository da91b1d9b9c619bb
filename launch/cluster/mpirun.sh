#!/usr/bin/env bash
# Trains on the hosts listed in a file, with mpirun of Open MPI over ssh.
#
#   launch/cluster/mpirun.sh HOSTS lockstep train CONFIG.toml --run RUN ...
#
# HOSTS has one line per host: "n1 slots=8" starts eight ranks on n1. The program, configuration,
# datasets and run directory have the same paths on all hosts. SIGTERM, SIGUSR1 and Ctrl-C save after
# the current step and stop the run with exit code 75. Rerun the same command to resume
# (docs/running_on_a_cluster.md).
#
#   LOCKSTEP_INTERFACE=eth0   the network interface between hosts, if hosts have several
#
# All ranks get the variables LOCKSTEP_... (except LOCKSTEP_HOSTNAME), NCCL_... and LD_LIBRARY_PATH.
set -uo pipefail
hosts=${1:?usage: mpirun.sh HOSTS PROGRAM ...}
shift

options=(
  --hostfile "$hosts"
  --bind-to none           # the ranks of a host divide its CPU cores themselves
  # An idle daemon notices after about ten seconds that its host is unreachable.
  --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3
)
if [[ -n ${LOCKSTEP_INTERFACE:-} ]]; then
  options+=(--mca btl_tcp_if_include "$LOCKSTEP_INTERFACE"
            --mca oob_tcp_if_include "$LOCKSTEP_INTERFACE")
  export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$LOCKSTEP_INTERFACE}"  # "=": exact names
fi
# By default mpirun sends only its own variables.
unset LOCKSTEP_HOSTNAME  # of this host only
for name in ${!LOCKSTEP_*} ${!NCCL_*} ${!LD_LIBRARY_PATH*}; do options+=(-x "$name"); done

# An unreachable host sends no confirmation: mpirun and its daemon on that host would wait for each
# other for 15 minutes. Therefore this script kills mpirun 20 s after the first of its processes (a
# rank, ssh) has ended. The first rank of a host starts a watch that kills its daemon 30 s later.
options+=(--mca plm_rsh_no_tree_spawn 0)  # ssh stays as long as the daemon
# shellcheck disable=SC2016
rank='
  watch="tail --pid=$$ -f /dev/null; timeout 30 tail --pid=$PPID -f /dev/null || kill -KILL $PPID"
  if [ "$OMPI_COMM_WORLD_LOCAL_RANK" = 0 ]; then
    (setsid sh -c "$watch" </dev/null >/dev/null 2>&1 &)
  fi
  exec "$@"'

# After a failure mpirun prints up to 15 lines after the error of the run. This function copies the
# log and keeps the last error, which the script prints again at the end.
is_error='^([0-9:]{8} (rank [0-9]+: )?error|lockstep): |^[0-9:]{8} (stopped by a signal|stopped by a request|the next phase needs) '
reason=$(mktemp)
trap 'rm -f "$reason"' EXIT
note_reason() {
  local line
  trap '' USR1 TERM INT
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line" >&2
    [[ ! $line =~ $is_error ]] || printf '%s\n' "$line" >"$reason"
  done
}
exec {log}> >(note_reason)
notes=$!

# mpirun forwards SIGUSR1 to all ranks; after SIGTERM or Ctrl-C it kills them within two seconds.
set -m  # a separate process group, which Ctrl-C does not reach
mpirun "${options[@]}" sh -c "$rank" sh "$@" </dev/null 2>&"$log" &
job=$!
exec {log}>&-
set +m
trap 'kill -USR1 "$job"' TERM INT USR1
most=0 late=0
while kill -0 "$job" 2>/dev/null; do
  sleep 1 & wait $!  # a signal ends wait, not mpirun
  children=$(cat "/proc/$job/task/"*/children 2>/dev/null) || continue  # a thread ended meanwhile
  now=$(wc -w <<<"$children")
  ((most = now > most ? now : most, late = now < most ? late + 1 : 0))
  if ((late > 20)); then
    echo "a host is unreachable; killing mpirun" >&2
    # shellcheck disable=SC2086
    kill -KILL "$job" $children  # ssh to an unreachable host would stay for hours
    wait "$job" 2>/dev/null
    exit 75
  fi
done
wait "$job"
code=$?
timeout 5 tail --pid="$notes" -f /dev/null  # an ssh that stays may keep the log open
[[ $code == 0 || ! -s $reason ]] || echo "mpirun.sh: exit code $code: $(<"$reason")" >&2
exit "$code"
