#!/usr/bin/env bash
# The first process of a worker's container: sshd, by which mpirun starts the ranks here.
#
#   launch/cluster/worker.sh /usr/sbin/sshd -De -f CONFIG
#
# When Kubernetes ends a pod, it sends SIGTERM to this process only. The script ends sshd, so that no
# rank starts here any more, and sends SIGTERM to the ranks. One rank that receives it is enough: all
# ranks of the run save after the same step and exit with 75. The script exits after the ranks and the
# daemon of mpirun, which reports their exit codes.
set -uo pipefail

named() {  # the ids of the processes of this container with one of these names
  grep --no-messages --files-with-matches --line-regexp "${@/#/--regexp=}" /proc/[0-9]*/comm |
    cut --delimiter=/ --fields=3
}
stop() {
  echo "worker.sh: SIGTERM: the ranks save and stop" >&2
  kill "$server"
  # shellcheck disable=SC2046
  kill -TERM $(named lockstep) 2>/dev/null
  while [[ -n $(named lockstep orted) ]]; do sleep 0.2; done
  exit 0
}

"$@" &
server=$!
trap stop TERM
wait "$server"
