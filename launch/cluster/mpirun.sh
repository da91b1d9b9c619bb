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
  # A host whose cable is cut is noticed, and ends its own ranks, in about ten seconds.
  --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3
)
if [[ -n ${LOCKSTEP_INTERFACE:-} ]]; then
  options+=(--mca btl_tcp_if_include "$LOCKSTEP_INTERFACE"
            --mca oob_tcp_if_include "$LOCKSTEP_INTERFACE")
  export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$LOCKSTEP_INTERFACE}"  # "=": names, no prefixes
fi
# mpirun sends only its own variables.
for name in ${!LOCKSTEP_*} ${!NCCL_*} ${!LD_LIBRARY_PATH*}; do options+=(-x "$name"); done

# mpirun passes SIGUSR1 on to all ranks; after SIGTERM or Ctrl-C it kills them within two seconds.
set -m  # a process group of its own, which Ctrl-C does not reach
mpirun "${options[@]}" "$@" </dev/null &
job=$!
trap 'kill -USR1 "$job"' TERM INT USR1
while kill -0 "$job" 2>/dev/null; do wait "$job"; done  # a signal ends wait, not mpirun
wait "$job"  # for its exit code
