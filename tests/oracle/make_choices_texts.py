#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/choices_texts.json: the texts that lm_eval makes from rows of benchmarks.

usage: make_choices_texts.py [--out FILE]     (needs lm_eval, whose tasks read the rows from here)

For each task the file holds:
  - the rows of its questions, and the rows from which few-shot examples are drawn
  - the number of examples
  - for each question the pairs of context and continuation of the requests of lm_eval
The committed file was made with lm_eval 0.4.13.
"""

import argparse
import json
import os
import pathlib
import random
import tempfile
from importlib.metadata import version

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
from lm_eval.tasks import TaskManager

FILE = pathlib.Path(__file__).resolve().parent / "fixtures" / "choices_texts.json"
WORDS = "the cat sat on a mat [step] and [title] then  it ran away from naïve dogs".split(" ")
rng = random.Random(5)
MANAGER = TaskManager()


def some(most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, most)))


def hellaswag():
    return {"activity_label": some(4), "ctx_a": some(8) + ".", "ctx_b": some(4),
            "endings": [some(9) for _ in range(4)], "label": str(rng.randrange(4))}


def arc():
    labels = rng.choice(["ABCD", "1234", "ABC"])
    return {"question": some(12) + "?", "answerKey": rng.choice(labels),
            "choices": {"text": [some(5) for _ in labels], "label": list(labels)}}


def piqa():
    return {"goal": some(9), "sol1": some(9), "sol2": some(9), "label": rng.randrange(2)}


def winogrande():
    return {"sentence": f"{some(6)} _ {some(6)} ", "option1": some(3), "option2": some(3),
            "answer": rng.choice("12")}


def mmlu():
    return {"question": f" {some(12)}? ", "subject": "anatomy", "choices": [some(5) for _ in range(4)],
            "answer": rng.randrange(4)}


# The name in tools/choices.py; the task of lm_eval, its row maker and its two splits.
TASKS = [("hellaswag", "hellaswag", hellaswag, "validation", "train"),
         ("arc", "arc_challenge", arc, "test", "train"), ("piqa", "piqa", piqa, "validation", "train"),
         ("winogrande", "winogrande", winogrande, "validation", "train"),
         ("mmlu", "mmlu_anatomy", mmlu, "test", "dev")]


def texts(name, splits, shots):
    """Returns for each question [context, continuation] of each request."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for split, rows in splits.items():
            files[split] = os.path.join(folder, split + ".json")
            with open(files[split], "w") as file:
                json.dump(rows, file)
        config = {"include": str(MANAGER.task_index[name].yaml_path), "task": name + "_here",
                  "dataset_path": "json", "dataset_name": None,
                  "dataset_kwargs": {"data_files": files, "cache_dir": folder}}
        path = os.path.join(folder, "task.yaml")
        with open(path, "w") as file:
            json.dump(config, file)  # JSON is YAML
        (task,) = MANAGER.load([path])["tasks"].values()
        task.set_config(key="num_fewshot", value=shots)
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests(rank=0, world_size=1)
        found = {}
        for instance in task.instances:
            found.setdefault(instance.doc_id, []).append(list(instance.args))
        return [found[i] for i in range(len(found))]


def case(task, name, make, asked_split, examples_split, shots, asked, examples):
    splits = {"train": examples, "validation": asked, "test": asked, asked_split: asked,
              examples_split: examples}
    return {"task": task, "shots": shots, "asked": asked, "examples": examples,
            "expected": texts(name, splits, shots)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=FILE)
    out = parser.parse_args().out
    cases = []
    for task, name, make, asked_split, examples_split in TASKS:
        asked, examples = [make() for _ in range(6)], [make() for _ in range(9)]
        # Two questions are also examples, and one of them is repeated.
        mixed = [asked[0], asked[1], *examples[:3], asked[1]]
        for shots, pool in ((0, examples), (3, examples), (3, mixed)):
            cases.append(case(task, name, make, asked_split, examples_split, shots, asked, pool))
    out.write_text(json.dumps({"lm_eval": version("lm_eval"), "cases": cases}, indent=1) + "\n")
    print(f"{out}: {len(cases)} cases")
