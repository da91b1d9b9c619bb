# shellcheck shell=bash
# For tests in shell, which source it: what a file says, by the phrases of wording.txt.

# phrases NAME [FIELD=VALUE]... [NAME ...]...: a pattern for grep -P
phrases() { python3 -B "$(dirname "${BASH_SOURCE[0]}")/wording.py" "$@"; }

# says FILE NAME..., says_not FILE NAME...: a line of FILE has the phrases in this order
says() {
  local wanted
  wanted=$(phrases "${@:2}") || exit 1
  grep -qP -- "$wanted" "$1" || { echo "expected '$wanted' in:"; cat "$1"; exit 1; }
}
says_not() {
  local unwanted
  unwanted=$(phrases "${@:2}") || exit 1
  ! grep -qP -- "$unwanted" "$1" || { echo "did not expect '$unwanted' in:"; cat "$1"; exit 1; }
}
