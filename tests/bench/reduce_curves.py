#!/usr/bin/env python3
"""Trains a small bf16 model with each value of layout.reduce, and with fp32 and another seed. Prints how far the
losses are from those of fp32. Needs root: each rank gets a boot id of its own, so it counts as a host of its own.

usage: reduce_curves.py LOCKSTEP DATASET [--steps 2000] [--ranks-per-host 1] [--work DIRECTORY]

DATASET has train/ and validation/ of bytes, as quickstart.sh packs them. Four ranks are two replicas of two shards.
A run that is finished in DIRECTORY is not repeated.
"""

import argparse
import json
import os
import pathlib
import subprocess
import uuid

CONFIG = """
[model]
family = "llama3"
layers = 3
width = 128
heads = 4
mlp_width = 320
vocabulary = 257
max_positions = 64
rope_theta = 10000
init_std = 0.08
[train]
batch_tokens = 1024
sequence_length = 64
micro_batch = 2
threads = 1
[layout]
replicate = 2
shard = 2
[precision]
compute = "bf16"
[optimizer]
learning_rate = 3e-3
[schedule]
kind = "linear"
decay_fraction = 0.5
[eval]
every_steps = 0
tokens = 262144
[checkpoint]
every_steps = 0
[log]
tensorboard = false
prometheus_file = ""
"""
RANKS = 4
RUNS = (("fp32", 1), ("bf16", 1), ("nccl", 1), ("fp32", 2))
WINDOW = 50  # steps of a mean; means of whole windows are compared
ON_A_HOST = """
host=$((OMPI_COMM_WORLD_RANK / $1)) && mount --bind "$2/boot_id_$host" /proc/sys/kernel/random/boot_id &&
shift 2 && exec "$@"
"""


def train(lockstep, data, work, reduce, seed, steps, ranks_per_host):
    run = work / f"{reduce}_{seed}"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] if run.exists() else []
    if not rows or rows[-1]["step"] < steps:
        (work / "config.toml").write_text(CONFIG)
        for host in range(RANKS):
            (work / f"boot_id_{host}").write_text(f"{uuid.uuid4()}\n")
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS),
                   "unshare", "--mount", "sh", "-c", ON_A_HOST, "sh", str(ranks_per_host), work,
                   lockstep, "train", work / "config.toml", "--run", run]
        for setting in (f"layout.reduce={reduce}", f"train.seed={seed}", f"train.steps={steps}",
                        f"data.train={data / 'train'}", f"data.validation={data / 'validation'}"):
            command += ["--set", setting]
        with open(work / f"{run.name}.log", "w", encoding="utf-8") as log:
            subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=subprocess.STDOUT,
                           env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows]
    means = [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, steps - WINDOW + 1, WINDOW)]
    return rows[-1]["validation_loss"], means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("dataset", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--ranks-per-host", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--work", type=pathlib.Path, default="reduce_curves")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    found = [train(options.lockstep.resolve(), options.dataset.resolve(), work, reduce, seed, options.steps,
                   options.ranks_per_host) for reduce, seed in RUNS]
    _, first = found[0]
    print("| `layout.reduce` | seed | validation loss | largest difference of training losses from fp32 |\n|---|---|---|---|")
    for (reduce, seed), (validation, means) in zip(RUNS, found):
        most = max(abs(mean - other) for mean, other in zip(means, first))
        print(f"| {reduce} | {seed} | {validation:.4f} | {most:.4f} |", flush=True)


if __name__ == "__main__":
    main()
