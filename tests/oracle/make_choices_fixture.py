#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/choices: scores of lm_eval for multiple-choice questions.

usage: make_choices_fixture.py [--out DIR]     (needs torch, transformers, tokenizers and lm_eval[hf])

  config.json, model.safetensors, tokenizer.json, tokenizer_config.json
                  a random model of 64 positions and a byte-level BPE trained on the text below
  questions.jsonl questions in the format of `lockstep eval --choices`
  expected.json   log p of each choice, from lm_eval's HFLM.loglikelihood; shares and standard errors
                  of acc, acc_norm (by characters) and acc_bytes, from its formulas
                  (ConfigurableTask.process_results of multiple_choice, metrics.mean_stderr)

The committed files were made with lm_eval 0.4.13, torch 2.15.0 and transformers 5.23.0.
"""

import argparse
import json
import os
import pathlib
import random
from importlib.metadata import version

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import tokenizers
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean, mean_stderr
from lm_eval.models.huggingface import HFLM

import make_fixtures

FOLDER = make_fixtures.FIXTURES / "choices"
POSITIONS = 64
TEXT = """A man is standing in a kitchen. He takes a knife from the drawer and cuts an onion.
Question: Which of these keeps a drink warm for the longest time?
Answer: a flask with two walls and nothing between them
The following are multiple choice questions (with answers) about anatomy.
A dog runs over the field and brings back the stick that was thrown, again and again.
Was weiß die Frau über den Fluß? \u6c34\u306f\u51b7\u305f\u3044\u3002 The naïve façade of the café.
    if (count == 0) return 1;   // nothing is left
The trophy does not fit into the suitcase because it is too large.
"""


def train_tokenizer(folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
    ).save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in ("tokenizer.json", "tokenizer_config.json"):
            path.unlink()
    return tokenizer.get_vocab_size()


def make_model(folder, vocabulary):
    torch.manual_seed(7)
    sizes = dict(make_fixtures.LLAMA_SIZES, vocab_size=vocabulary, max_position_embeddings=POSITIONS)
    config = transformers.LlamaConfig(
        **sizes, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    make_fixtures.make_model(config, spread=0.3).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def questions():
    """Yields a few questions of each kind, then random ones."""
    yield dict(context="The sky is ", choices=["blue", "a flask", "naïve façade"], label=0)
    yield dict(context="The sky is", choices=[" blue", " green"], label=1)
    yield dict(context="", choices=["A man", "The dog runs"], label=1)
    yield dict(context=" \u2003\u00a0\x1f", choices=["knife", "onion"], label=0)  # only whitespace
    yield dict(context="Question: Which?\nAnswer: ", choices=["A", "B", "C", "D"], label=2)
    yield dict(context="水は", choices=["冷たい。", "暖かい", "水"], label=0, id="water")
    yield dict(choice_contexts=["The suitcase ", "The trophy "],
               choices=["is too large.", "is too large."], label=1)
    yield dict(context="again and " * 40, choices=["again", "over the field and back", "x"], label=0)
    yield dict(context="one " * 16, choices=["two " * 15 + "two", "three"], label=1)
    words = TEXT.split()
    rng = random.Random(3)

    def some(most):
        return " ".join(rng.choice(words) for _ in range(rng.randrange(1, most)))

    for _ in range(41):
        choices = [some(9) for _ in range(rng.randrange(2, 6))]
        yield dict(context=some(20) + " ", choices=choices, label=rng.randrange(len(choices)))


def score(folder, asked):
    lm = HFLM(pretrained=str(folder), backend="causal", batch_size=4, max_length=POSITIONS,
              dtype="float32", device="cpu")
    requests, counts = [], []
    for question in asked:
        contexts = question.get("choice_contexts") or [question["context"]] * len(question["choices"])
        # In these files the delimiter, a space, ends the context. lm_eval puts it before the choice, and
        # leaves an empty context without one.
        for context, choice in zip(contexts, question["choices"]):
            stripped = context.rstrip()
            requests.append((stripped, context[len(stripped):] + choice))
        counts.append(len(question["choices"]))
    instances = [Instance("loglikelihood", {}, arguments, i) for i, arguments in enumerate(requests)]
    found = iter(lm.loglikelihood(instances, disable_tqdm=True))
    return [[next(found)[0] for _ in range(count)] for count in counts]


def shares(asked, logp):
    lengths = dict(acc=lambda c: 1, acc_norm=len, acc_bytes=lambda c: len(c.encode()))
    result = {}
    for name, length in lengths.items():
        right = []
        for question, lls in zip(asked, logp):
            by = np.array([float(length(choice)) for choice in question["choices"]])
            right.append(1.0 if np.argmax(np.array(lls) / by) == question["label"] else 0.0)
        result[name] = mean(right)
        result[name + "_stderr"] = mean_stderr(right)
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    make_model(out, train_tokenizer(out))
    asked = list(questions())
    logp = score(out, asked)
    with open(out / "questions.jsonl", "w") as file:
        for question in asked:
            file.write(json.dumps(question, ensure_ascii=False) + "\n")
    expected = dict(lm_eval=version("lm_eval"), logp=logp, **shares(asked, logp))
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print({name: value for name, value in expected.items() if name != "logp"})
