#!/usr/bin/env bash
# Restarts a run until it is done or a restart cannot help. It works in containers that Kubernetes
# restarts.
#
#   launch/cluster/restart.sh STATE launch/cluster/mpirun.sh HOSTS lockstep train CONFIG.toml --run RUN ...
#
# STATE is a directory that outlives this process. When this script stops retrying, it writes its exit
# code to that directory, and a later start exits with this code at once.
# docs/running_on_a_cluster.md lists the exit codes. SIGUSR1, SIGTERM and SIGINT are forwarded to the
# command as SIGUSR1, and the command is not restarted after that.
set -uo pipefail
state=${1:?usage: restart.sh STATE COMMAND ... --run RUN}
shift
most_without_save=3        # consecutive starts
backoff_seconds=150        # after 74 or an unsaved start; doubled for each consecutive unsaved start

run='' previous=''
for word in "$@"; do
  [[ $previous == --run ]] && run=$word
  [[ $word == --run=* ]] && run=${word#--run=}
  previous=$word
done
tell() { echo "restart.sh: $*" >&2; }
[[ -n $run ]] || { tell "pass the run directory with --run RUN"; exit 64; }
if [[ -f $state/ended ]]; then
  code=$(<"$state/ended")
  tell "an earlier start stopped retrying with exit code $code. Not started; fix the cause and remove $state/ended"
  exit "$code"
fi
give_up() {
  tell "$2. Not restarted"
  echo "$1" >"$state/ended"
  exit "$1"
}
saved_step() {  # the newest saved step, wherever its checkpoint is
  cat "$run/saved_step.txt" 2>/dev/null
}

# Copies the log and records saves, so that a saved run never starts over at step 0. The log outlives a
# run directory that is removed right after a save.
note_saves() {
  local line
  trap '' USR1 TERM INT
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line" >&2
    [[ $line != *' saved step '* ]] || : >"$state/saved"
  done
}

job='' told=''
stop() {
  told=yes
  [[ -z $job ]] || kill -USR1 "$job" 2>/dev/null
}
trap stop USR1 TERM INT
without_save=0
while :; do
  before=$(saved_step)
  [[ -z $before ]] || : >"$state/saved"
  if [[ -e $state/saved && ! -e $run/lock ]]; then
    give_up 65 "$run: the saved run is missing; restore it or move it back (to start over, remove $state/saved)"
  fi
  "$@" 2> >(note_saves) &
  job=$!
  while kill -0 "$job" 2>/dev/null; do wait "$job"; done  # a signal ends wait, not the command
  wait "$job"
  code=$?
  [[ $code == 0 || -n $told ]] && exit "$code"
  [[ $code != 130 ]] || give_up 130 "the run was stopped by \`lockstep ctl RUN stop\`"
  case $code in 64 | 65 | 77 | 78) give_up "$code" "exit code $code: a retry cannot help" ;; esac
  after=$(saved_step)
  ((without_save = ${after:--1} > ${before:--1} ? 0 : without_save + 1))
  ((without_save < most_without_save)) || give_up "$code" "$without_save consecutive starts saved nothing"
  seconds=$(((code == 74 || without_save > 0) ? backoff_seconds << without_save : 1))
  tell "the run ended with exit code $code; restarting in $seconds s"
  sleep "$seconds" &
  wait $!
  [[ -z $told ]] || exit "$code"
done
