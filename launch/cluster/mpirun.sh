#!/usr/bin/env bash
# Trains on the hosts of a file, by Open MPI's mpirun over ssh.
#
#   launch/cluster/mpirun.sh HOSTS lockstep train CONFIG.toml --run RUN ...
#
# HOSTS has a line a host, "n1 slots=8": eight ranks there. The program, configuration, datasets and
# the run's folder have the same paths on all of them. SIGTERM, SIGUSR1 and Ctrl-C stop the run after
# its step, saved, with exit code 75; the same command goes on (docs/running_on_a_cluster.md).
#
#   LOCKSTEP_INTERFACE=eth0   where hosts have several networks: the one that joins them
#
# The variables LOCKSTEP_..., NCCL_... and LD_LIBRARY_PATH that are set here are set for all ranks.
set -uo pipefail
hosts=${1:?usage: mpirun.sh HOSTS PROGRAM ...}
shift

options=(
  --hostfile "$hosts"
  --bind-to none           # ranks of a host divide its processors themselves
  # A daemon with nothing to say notices in about ten seconds that its host is cut off.
  --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3
)
if [[ -n ${LOCKSTEP_INTERFACE:-} ]]; then
  options+=(--mca btl_tcp_if_include "$LOCKSTEP_INTERFACE"
            --mca oob_tcp_if_include "$LOCKSTEP_INTERFACE")
  export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$LOCKSTEP_INTERFACE}"  # "=": names, no prefixes
fi
# mpirun sends only its own variables.
for name in ${!LOCKSTEP_*} ${!NCCL_*} ${!LD_LIBRARY_PATH*}; do options+=(-x "$name"); done

# A host that is cut off confirms nothing: mpirun here and its daemon there would wait for each other for
# a quarter of an hour. So mpirun ends at the latest 20 s after the first process that it started (a rank,
# ssh), and a daemon 30 s after its first rank, which leaves a watch behind.
options+=(--mca plm_rsh_no_tree_spawn 0)  # ssh stays as long as the daemon
# shellcheck disable=SC2016
rank='
  watch="tail --pid=$$ -f /dev/null; timeout 30 tail --pid=$PPID -f /dev/null || kill -KILL $PPID"
  if [ "$OMPI_COMM_WORLD_LOCAL_RANK" = 0 ]; then
    (setsid sh -c "$watch" </dev/null >/dev/null 2>&1 &)
  fi
  exec "$@"'

# mpirun passes SIGUSR1 on to all ranks; after SIGTERM or Ctrl-C it kills them within two seconds.
set -m  # a process group of its own, which Ctrl-C does not reach
mpirun "${options[@]}" sh -c "$rank" sh "$@" </dev/null &
job=$!
set +m
trap 'kill -USR1 "$job"' TERM INT USR1
most=0 late=0
while kill -0 "$job" 2>/dev/null; do
  sleep 1 & wait $!  # a signal ends wait, not mpirun
  children=$(cat "/proc/$job/task/"*/children 2>/dev/null) || continue  # a thread of it ended
  now=$(wc -w <<<"$children")
  ((most = now > most ? now : most, late = now < most ? late + 1 : 0))
  if ((late > 20)); then
    echo "a host is cut off: mpirun does not wait for it" >&2
    # shellcheck disable=SC2086
    kill -KILL "$job" $children  # ssh to a host that is gone would stay for hours
    wait "$job" 2>/dev/null
    exit 75
  fi
done
wait "$job"  # for its exit code
