#!/usr/bin/env bash
# usage: completion_test.sh LOCKSTEP
#
# Completion in bash, by the function that `lockstep completion bash` prints.
set -euo pipefail
eval "$("$1" completion bash)"

fail() { echo "FAILED: $*" >&2; exit 1; }

# complete_words WORDS...: the last of them is being typed
complete_words() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _lockstep || true
}

# completes WORDS... -- EXPECTED...
completes() {
  local words=()
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  complete_words "${words[@]}"
  [[ ${COMPREPLY[*]:-} == "$*" ]] || fail "${words[*]}: '${COMPREPLY[*]:-}', expected '$*'"
}

completes lockstep p -- plan preflight
completes lockstep data pa -- pack
completes lockstep data pack --tok -- --tokenizer
completes lockstep data pack --tokenizer b -- bytes
completes lockstep data pack --missing-bytes '' -- refuse drop replace
completes lockstep train configs/a.toml --set schedule.k -- schedule.kind=
completes lockstep eval runs/a --device c -- cpu cuda
completes lockstep completion '' -- bash zsh --help
completes lockstep train --run '' --  # no words: bash completes names of files
completes lockstep generate pack --top -- --top-k --top-p  # "pack" is a file here, not a verb

# Each verb and flag of the help is offered.
offered=0
for verb in '' train 'data pack' 'checkpoint export' plan; do
  read -ra words <<<"$verb"
  for name in $("$1" "${words[@]}" --help | sed -nE 's/^  (-h,)?(--[a-z-]+|[a-z]+)( .*)?$/\2/p'); do
    complete_words lockstep "${words[@]}" "$name"
    [[ " ${COMPREPLY[*]:-} " == *" $name "* ]] || fail "$verb: $name is not offered"
    ((++offered))
  done
done
((offered > 50)) || fail "the help listed only $offered words"
