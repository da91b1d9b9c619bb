#!/usr/bin/env bash
# Restarts a run until it is done or a restart cannot help, also in a container that Kubernetes restarts.
#
#   launch/cluster/restart.sh STATE launch/cluster/mpirun.sh HOSTS lockstep train CONFIG.toml --run RUN ...
#
# STATE is a folder that outlives this process. When this script gives up, it writes its exit code there; a
# later start ends with that code at once. docs/running_on_a_cluster.md lists the exit codes.
# SIGUSR1, SIGTERM and SIGINT go to the command as SIGUSR1; then it is not started again.
set -uo pipefail
state=${1:?usage: restart.sh STATE COMMAND ... --run RUN}
shift
most_without_save=3        # starts in a row
backoff_seconds=150        # after exit code 74, doubled for each start in a row without a save

run='' previous=''
for word in "$@"; do
  [[ $previous == --run ]] && run=$word
  [[ $word == --run=* ]] && run=${word#--run=}
  previous=$word
done
tell() { echo "restart.sh: $*" >&2; }
[[ -n $run ]] || { tell "name the run's folder with --run RUN"; exit 64; }
if [[ -f $state/ended ]]; then
  code=$(<"$state/ended")
  tell "an earlier start gave up with exit code $code. Not started; after the cause is fixed, remove $state/ended"
  exit "$code"
fi
give_up() {
  tell "$2. Not started again"
  echo "$1" >"$state/ended"
  exit "$1"
}
newest_step() {  # that is in the run's folder
  local step
  for step in "$run"/checkpoints/step-*; do
    [[ $step =~ /step-0*([0-9]+)$ ]] && echo "${BASH_REMATCH[1]}"
  done | sort -n | tail -1
}

note_saves() {  # passes the log on; a run that has saved is never begun again at step 0
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
  before=$(newest_step)
  [[ -z $before ]] || : >"$state/saved"
  if [[ -e $state/saved && ! -e $run/lock ]]; then
    give_up 65 "$run: the run that was saved is gone; restore it or move it back (to begin anew, remove $state/saved)"
  fi
  "$@" 2> >(note_saves) &
  job=$!
  while kill -0 "$job" 2>/dev/null; do wait "$job"; done  # a signal ends wait, not the command
  wait "$job"
  code=$?
  [[ $code == 0 || -n $told ]] && exit "$code"
  case $code in 64 | 65 | 77 | 78) give_up "$code" "exit code $code: a retry cannot help" ;; esac
  after=$(newest_step)
  ((without_save = ${after:--1} > ${before:--1} ? 0 : without_save + 1))
  ((without_save < most_without_save)) || give_up "$code" "$without_save starts in a row saved nothing"
  seconds=$(((code == 74 || without_save > 0) ? backoff_seconds << without_save : 1))
  tell "the run ended with exit code $code; it starts again in $seconds s"
  sleep "$seconds" &
  wait $!
  [[ -z $told ]] || exit "$code"
done
