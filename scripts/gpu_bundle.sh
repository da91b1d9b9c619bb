#!/usr/bin/env bash
# gpu_bundle.sh DIR: unpacks into DIR the Debian headers and GoogleTest that a build needs, and where
# they can be had the headers of cuDNN's frontend and torchao (PyTorch in fp8, to compare with), for a
# machine that has the CUDA toolkit, CMake and ninja but neither these packages nor a network. With DIR
# copied there, tests/gpu/run.sh builds against it: LOCKSTEP_BUNDLE=DIR tests/gpu/run.sh
# Where LOCKSTEP_LLMC names a directory with llm.c, which is compared with too, DIR gets a copy: the program
# train_gpt2cu where it is built, else its sources. Of LLMQ, in LOCKSTEP_LLMQ, it gets what was built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
dir=${1:?usage: $0 DIR}
packages=(libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev libgtest-dev)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq "${packages[@]}")
for package in "$work"/*.deb; do
  dpkg-deb -x "$package" "$dir"
done
rm -rf "$dir/usr/share/doc" "$dir/usr/src"
cudnn_frontend "$dir/usr" || echo "without cuDNN's frontend: it cannot be had from PyPI"
torchao "$dir/python" || echo "without torchao: it cannot be had from PyPI"
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
echo "$dir: $(du -sh "$dir" | cut -f1), $(tar -cz -C "$dir" . | wc -c | numfmt --to=iec) compressed"
