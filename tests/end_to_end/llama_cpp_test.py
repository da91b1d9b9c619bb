#!/usr/bin/env python3
"""GGUF files in llama.cpp: a small model of each family gives the same tokens and the same greedy text as Lockstep.
Logits in Q8_0 stay near those in F32.

llama_cpp_test.sh installs the packages and calls this script.

usage: llama_cpp_test.py LOCKSTEP
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import llama_cpp
import numpy
import tokenizers

from pack_test import Bpe, WORDS

LOCKSTEP = sys.argv[1]
TOKENS = 24  # of a generated text
LOSS = 1e-4  # relative; llama.cpp has the GELU of GPT-2 in F16
# Each weight of a block is within 1/254 of the block's largest one. The logits of two layers then differ by some
# percent of their spread; with a wrong scale or order of elements they differ by all of it.
MOST_Q8_0 = 0.1
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
# pre_tokenizer before ByteLevel, ignore_merges
SPLITS = {"gpt-2": ([], False), "llama-bpe": ([LLAMA3], True), "smaug-bpe": ([LLAMA3], False),
          "qwen2": ([QWEN], False), "smollm": ([r"\p{N}"], False)}
# family: (tokenizer, keys of [model])
MODELS = {"gpt2": ("gpt-2", ""),
          "llama3": ("llama-bpe", "kv_heads = 2\nrope_scaling_factor = 8.0\nrope_scaling_context = 32\n"),
          "qwen2": ("qwen2", "kv_heads = 2\n"), "qwen3": ("smaug-bpe", "kv_heads = 2\nhead_size = 32\n"),
          "smollm3": ("smollm", "kv_heads = 2\n"), "bytes": ("bytes", "")}
TEXTS = ["the cat and the cat in the an", "It's 12345 o'clock,  they'LL\n\n run\t\r\n again  ", "x  y   z \n",
         "na\u00efve \u6f22\u5b57 \U0001f600\u200d\u2640 \u0661\u0662\u0663 \u00a0 end", "<|im_start|>user", ""]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(*arguments, fails=False):
    done = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, timeout=600, check=False)
    expect((done.returncode != 0) == fails, f"{arguments}: {done.returncode}: {done.stderr.decode()[-700:]}")
    return done.stderr.decode() if fails else done.stdout.decode()


def write_tokenizer(folder, name):
    bpe = Bpe()
    bpe.write(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    patterns, content["model"]["ignore_merges"] = SPLITS[name]
    level = content["pre_tokenizer"] | {"use_regex": name in ("gpt-2", "smollm")}
    splits = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, level]}
    file.write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}<|im_end|>")
    return bpe.vocabulary


def trained(folder, name):
    """The run of a model with large weights, so that its texts depend on every token before."""
    tokenizer, keys = MODELS[name]
    rng = random.Random(7)
    (folder / "text.txt").write_text("\n\n".join(" ".join(rng.choice(WORDS[:9]) for _ in range(60)) for _ in range(90)))
    what, vocabulary = ("bytes", 257) if tokenizer == "bytes" else (folder / "tokenizer", None)
    vocabulary = vocabulary or write_tokenizer(what, tokenizer)
    run("data", "pack", folder / "text.txt", "--document-separator", r"\n\n", "--tokenizer", what, "--out",
        folder / "data")
    (folder / "run.toml").write_text(f"""
[model]
family = "{'llama3' if name == 'bytes' else name}"
layers = {4 if name == 'smollm3' else 2}
width = 64
heads = 4
mlp_width = 128
vocabulary = {vocabulary}
max_positions = 256
init_std = {0.1 if name == 'gpt2' else 0.2}
{keys}
[train]
steps = 5
batch_tokens = 1024
sequence_length = 64
[optimizer]
learning_rate = 1e-3
[data]
train = ["{folder / 'data'}"]
[log]
tensorboard = false
""")
    run("train", folder / "run.toml", "--run", folder / "run", "--device", "cpu", "--set", "train.threads=1")
    return folder / "run"


def loss_of(folder, source, text):
    """The mean loss of a text."""
    (folder / "line.jsonl").write_text(json.dumps({"text": text}) + "\n")
    tokenizer = folder / "tokenizer"
    run("data", "pack", folder / "line.jsonl", "--tokenizer", tokenizer if tokenizer.exists() else "bytes", "--out",
        folder / "line")
    tokens = json.loads((folder / "line" / "dataset.json").read_text())["tokens"]
    found = json.loads(run("eval", source, "--data", folder / "line", "--sequence-length", tokens - 1, "--device", "cpu"))
    expect(found["tokens"] == tokens - 1, f"{found}: all of {tokens} tokens")
    return found["loss_nats"]


class LlamaCpp:
    def __init__(self, path):
        f32 = 0  # the KV cache is F16 by default
        self.model = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, n_threads=1, n_threads_batch=1,
                                     type_k=f32, type_v=f32, verbose=False)

    def logits(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return numpy.array(self.model.scores[:len(ids)])

    def loss(self, ids):
        logits = self.logits(ids)[:-1].astype(numpy.float64)
        totals = numpy.log(numpy.exp(logits).sum(axis=1))
        return float((totals - logits[range(len(ids) - 1), ids[1:]]).mean())

    def greedy(self, ids, end):
        ids, length = list(ids), len(ids)
        while len(ids) < length + TOKENS:
            token = int(self.logits(ids)[-1].argmax())
            if token == end:
                break
            ids.append(token)
        return ids[length:]

    def tokens(self, text):
        return self.model.tokenize(text.encode(), add_bos=False, special=False)

    def text(self, ids):
        return b"".join(self.model.detokenize([i]) for i in ids).decode(errors="replace")


def compare(folder, name):
    folder.mkdir()
    source = trained(folder, name)
    files = {kind: folder / f"{kind}.gguf" for kind in ("F32", "F16", "Q8_0")}
    for kind, file in files.items():
        run("checkpoint", "export", source, "--out", file, "--gguf", kind)
    exact, half, quantized = (LlamaCpp(file) for file in files.values())
    if name == "bytes":
        def encode(text):
            return list(text.encode())
        document, end = 256, 256
    else:
        reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        reference.encode_special_tokens = True  # names of special tokens in a text are plain text
        document = end = reference.token_to_id("<|endoftext|>")
        metadata = exact.model.metadata

        def encode(text):
            return reference.encode(text, add_special_tokens=False).ids
        expect(metadata["tokenizer.chat_template"] == "{{ messages[0].content }}<|im_end|>", f"{name}: {metadata}")
    for text in TEXTS:
        expect(exact.tokens(text) == encode(text), f"{name}: tokens of {text!r}: {exact.tokens(text)} {encode(text)}")
    expect(exact.model.token_eos() == end, f"{name}: end token {exact.model.token_eos()}")
    adds = exact.model.tokenize(b"a", add_bos=True)[0] == document
    expect(adds == (name == "bytes"), f"{name}: the document token in front, as in training: {adds}")

    rng = random.Random(3)
    text = "".join(rng.choice(WORDS) for _ in range(40))
    loss, expected = exact.loss([document, *encode(text)]), loss_of(folder, source, text)
    expect(abs(loss - expected) < LOSS * expected, f"{name}: the loss is {loss}, with Lockstep {expected}")
    prompts = [" ".join(rng.choice(WORDS[:9]) for _ in range(n)) for n in (1, 3, 8)]
    lines = folder / "prompts.jsonl"
    lines.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    answers = [json.loads(line)["text"] for line in
               run("generate", source, "--prompt-file", lines, "--temperature", 0, "--tokens", TOKENS, "--device",
                   "cpu").splitlines()]
    worst = {}
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = [document, *encode(prompt)]
        said = exact.text(exact.greedy(ids, end))
        expect(said == answer, f"{name}: {prompt!r} continues as {said!r}, with Lockstep as {answer!r}")
        logits = exact.logits(ids)
        spread = logits.std()
        for kind, model in (("F16", half), ("Q8_0", quantized)):
            error = float(numpy.sqrt(((model.logits(ids) - logits) ** 2).mean())) / spread
            worst[kind] = max(worst.get(kind, 0), error)
    print(f"{name}: greedy texts {answers}, error of logits by their spread: {worst}", flush=True)
    expect(worst["F16"] < worst["Q8_0"] < MOST_Q8_0, f"{name}: errors of logits {worst}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            compare(pathlib.Path(folder) / name, name)
    print(len(failures), "failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
