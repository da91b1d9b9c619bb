#!/usr/bin/env python3
"""How fast one thread turns text into tokens, beside the packages `tokenizers` and `tiktoken`.

    tokenizer_bench.py TOKENIZE TEXT [--rounds N] [--vocabulary V]

TOKENIZE is build/cpu/tests/tokenize. Tokenizers with GPT-2's, Llama 3's and Qwen 3's settings are trained on
TEXT, which is cut into documents of about 4 kB; then the three take turns at all documents, each on one thread.
Printed: MB for a second of processor time, so that other work on the machine counts little, best and median of the
rounds, and the ratio to the faster of the two packages, round by round.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data"))

import tiktoken  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from tokenizers_agree import FAMILIES, LLAMA, QWEN  # noqa: E402

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {"gpt2": GPT2, "llama3": LLAMA, "qwen3": QWEN}


def trained(name, documents, vocabulary):
    normalizer, pre_tokenizer, ignore_merges, _ = FAMILIES[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def byte_of():
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's bytes_to_unicode)."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(others)}


def tiktoken_of(name, tokenizer):
    bytes_of = byte_of()
    ranks = {bytes(bytes_of[c] for c in token): rank for token, rank in tokenizer.get_vocab().items()}
    return tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})


def seconds(act):
    begin = time.process_time()
    count = act()
    return time.process_time() - begin, count


def measure(name, options, documents, path):
    tokenizer = trained(name, documents, options.vocabulary)
    other = tiktoken_of(name, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/tokenizer.json"
        tokenizer.save(file)

        def ours():
            words = subprocess.run([options.tokenize, file, path, "--seconds"], check=True, capture_output=True,
                                   text=True).stdout.split()
            return float(words[0]), int(words[1])

        rows = {"lockstep": [], "tokenizers": [], "tiktoken": []}
        counts = {}
        for _ in range(options.rounds):
            rows["lockstep"].append(ours())
            rows["tokenizers"].append(seconds(lambda: sum(len(e.ids) for e in tokenizer.encode_batch(
                documents, add_special_tokens=False))))
            rows["tiktoken"].append(seconds(lambda: sum(len(other.encode_ordinary(d)) for d in documents)))
    size = sum(len(document.encode()) for document in documents) / 1e6
    for who, times in rows.items():
        counts[who] = times[0][1]
        rates = [size / t for t, _ in times]
        print(f"{name:8} {who:11} {max(rates):7.2f} MB/s best {statistics.median(rates):7.2f} median, {counts[who]} tokens")
    ratios = [min(t[0], k[0]) / o[0] for o, t, k in zip(*rows.values())]
    print(f"{name:8} ratio to the faster: best {max(ratios):.2f}, median {statistics.median(ratios):.2f}", flush=True)
    if len(set(counts.values())) != 1:
        print(f"{name:8} they differ in what they made: {counts}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenize")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=32000)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    documents, at = [], 0
    while at < len(text):
        end = text.find("\n", at + 4000)
        end = len(text) if end < 0 else end + 1
        documents.append(text[at:end])
        at = end
    with tempfile.NamedTemporaryFile() as file:
        file.write("\0".join(documents).encode())
        file.flush()
        for name in PATTERNS:
            measure(name, options, documents, file.name)


if __name__ == "__main__":
    sys.exit(main())
