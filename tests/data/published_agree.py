#!/usr/bin/env python3
"""Compares Lockstep's ids with those of the packages that publish tokenizers by rank.

    published_agree.py PROGRAM FILES [--texts N] [--seed S]

PROGRAM is tests/tokenize. FILES has the parts of these packages that their tokenizers need: llama-models (Meta's
tokenizer.model of Llama 3), dashscope (Qwen's qwen.tiktoken) and mistral-common (a tekken.json). The ids are made by
their own classes, or for tekken.json by the package tiktoken with what the file says. The texts are those of
tokenizers_agree.py, and names of special tokens.
"""

import argparse
import base64
import json
import pathlib
import re
import sys

import tiktoken
from tokenizers import normalizers
from tokenizers_agree import Texts, fixed_texts, ids_of, invalid_texts


def llama3(files):
    from llama_models.llama3.tokenizer import Tokenizer
    path = files / "llama_models/llama3/tokenizer.model"
    tokenizer = Tokenizer(path)
    return path, tokenizer.model, tokenizer.special_tokens, None


def qwen(files):
    from dashscope.tokenizers.qwen_tokenizer import QwenTokenizer
    path = files / "dashscope/resources/qwen.tiktoken"
    encoding = QwenTokenizer(path)._tokenizer  # without its normalizer, which is that of Python's Unicode
    return path, encoding, encoding._special_tokens, normalizers.NFC()


def tekken(files):
    path = files / "mistral_common/data/tekken_240911.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    config = said["config"]
    special = config["default_num_special_tokens"]
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] + special
             for one in said["vocab"][:config["default_vocab_size"] - special]}
    # Their ids are below those of the ranks. The file names none: these are the package's for its version.
    code = files / "mistral_common/tokens/tokenizers"
    values = dict(re.findall(r'^    (\w+) = "(.+)"$', (code / "base.py").read_text(), re.MULTILINE))
    listed = re.findall(r"rank=(\d+), token_str=SpecialTokens[.](\w+)", (code / "tekken.py").read_text())
    assert [int(rank) for rank, _ in listed] == list(range(20)), listed
    names = [values[name] for _, name in listed]
    names += [f"<SPECIAL_{id}>" for id in range(len(names), special)]
    special_tokens = {name: id for id, name in enumerate(names)}
    encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens=special_tokens)
    return path, encoding, special_tokens, None


def compare(name, make, program, files, count, seed):
    path, encoding, special, normalizer = make(files)
    texts = Texts(seed)
    documents = [text.replace("\0", "0").encode() for text in [texts.draw() for _ in range(count)] + fixed_texts(thorough=False)
                 if len(text) < 100_000]  # tiktoken fails on longer words
    documents += list(invalid_texts(texts.random, max(count // 10, 100)))

    def expected_of(text):
        text = normalizer.normalize_str(text) if normalizer else text
        return encoding.encode(text, allowed_special="all")

    expected = [expected_of(document.decode(errors="replace")) for document in documents]
    names = sorted(special)
    documents += [f"a{one} b{one}".encode() for one in names]
    expected += [expected_of("a") + [special[one]] + expected_of(" b") + [special[one]] for one in names]
    found = ids_of(program, str(path), documents)
    differ = [i for i, ids in enumerate(expected) if found[i] != ids]
    print(f"{name}: {len(documents)} texts, {len(names)} special tokens, {len(differ)} differ", flush=True)
    for i in differ[:5]:
        print(f"  {documents[i].decode(errors='replace')[:80]!r}: expected {expected[i][:20]}, found {found[i][:20]}")
    return not differ and len(found) == len(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("files", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    agreed = [compare(make.__name__, make, options.program, options.files, options.texts, options.seed)
              for make in (llama3, qwen, tekken)]
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
