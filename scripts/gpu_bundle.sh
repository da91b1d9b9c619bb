#!/usr/bin/env bash
# gpu_bundle.sh DIR: collects in DIR the files that tests/gpu/run.sh needs on a host that has the CUDA
# toolkit and a GPU, but no network. Copy DIR to that host and run LOCKSTEP_BUNDLE=DIR tests/gpu/run.sh.
#   built     the programs of preset cuda, stripped, if this host has the CUDA toolkit
#   usr       the Debian headers and GoogleTest, for a build on the other host; cuDNN's frontend, if available
#   python    torchao (PyTorch in fp8, to compare with), if available
#   llmc      if LOCKSTEP_LLMC names a directory of llm.c: its built program train_gpt2cu, or its sources
#   llmq      if LOCKSTEP_LLMQ names a directory of LLMQ: its built program and library
# Fails if the bundle has more than 40 MiB compressed.
set -euo pipefail
dir=$(realpath -m "${1:?usage: $0 DIR}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/packages.sh
packages=(libcli11-dev libcurl4-openssl-dev nlohmann-json3-dev libpcre2-dev libssl-dev libtomlplusplus-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev libgtest-dev)
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq "${packages[@]}")
for package in "$work"/*.deb; do
  dpkg-deb -x "$package" "$dir"
done
rm -rf "$dir/usr/share/doc" "$dir/usr/src"
if cudnn_frontend build/cudnn_frontend; then
  cp -r build/cudnn_frontend/include "$dir/usr"
else
  echo "without cuDNN's frontend: the download from PyPI failed"
fi
torchao "$dir/python" || echo "without torchao: the download from PyPI failed"
rm -rf "$dir/built"
if [[ -x $(command -v nvcc || echo /usr/local/cuda/bin/nvcc) ]]; then
  programs=(lockstep tests/cuda_tests tests/cudnn_tests tests/safetensors_verdict bench/gpu_bench)
  cmake --preset cuda -DLOCKSTEP_TESTS=ON -DLOCKSTEP_BENCHMARKS=ON | grep 'cuDNN attention'
  cmake --build --preset cuda --target "${programs[@]##*/}"
  mkdir -p "$dir"/built/{tests,bench}
  for program in "${programs[@]}"; do
    strip -o "$dir/built/$program" "build/cuda/$program"
  done
else
  echo "without programs: nvcc not found"
fi
if [[ -n ${LOCKSTEP_LLMC:-} ]]; then
  rm -rf "$dir/llmc"
  mkdir -p "$dir/llmc"
  if [[ -x $LOCKSTEP_LLMC/train_gpt2cu ]]; then
    cp "$LOCKSTEP_LLMC/train_gpt2cu" "$dir/llmc"
  else
    cp -r "$LOCKSTEP_LLMC"/{Makefile,train_gpt2.cu,llmc} "$dir/llmc"
  fi
fi
if [[ -n ${LOCKSTEP_LLMQ:-} ]]; then
  mkdir -p "$dir/llmq/build"
  cp "$LOCKSTEP_LLMQ"/build/{train,libllmq-common.so} "$dir/llmq/build"
fi
bytes=$(tar -cz -C "$dir" . | wc -c)
echo "$dir: $(du -sh "$dir" | cut -f1), $(numfmt --to=iec "$bytes") compressed"
((bytes <= 40 << 20)) || { echo "$0: the bundle has $bytes bytes compressed, expected at most 40 MiB" >&2; exit 1; }
