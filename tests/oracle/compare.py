#!/usr/bin/env python3
"""Runs Lockstep, PyTorch, `transformers`, `datatrove` and `megatron-core`, and compares their results.

tests/oracle/run.sh builds Lockstep and calls this script.

usage: compare.py [--seed N] [--family NAME]... [--files N] [--device cpu|cuda] [--keep DIR]
                  LOCKSTEP VERDICT

For each family, Lockstep imports a model of random shape and weights from `transformers`, evaluates and
trains it, and exports it again. Both sides evaluate directories with unusual members in config.json
(config_members.py). The seed determines every draw, and is printed. A check prints one line: its
name, the largest error and the limit.
"""

import argparse
import collections
import copy
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file

import byte_tokenizer
import config_members
import heads
import make_fixtures
import models
import rank_files
import token_shards
import training
from lockstep import Lockstep, write_shards, write_toml

# Limits of relative errors. Lockstep computes in fp32, PyTorch in float64, except the norms and RoPE tables
# of `transformers`. A loss is a mean of hundreds of logarithms. Each has an error of a few roundings
# (6e-8), which mostly cancel. The weights differ more and more over 20 steps.
LOSS = 1e-5
# In norms of gradients the errors do not cancel.
GRAD_NORM = 1e-4
# PyTorch in fp32 may differ from float64 by this share of both limits; otherwise the draw is repeated.
OWN = 0.1
# Both sides compute the formula in float64 and print every digit.
RATE = 1e-12
# The same program with the same weights gives the same bits on one host; other hosts round differently.
FIXTURES = 1e-6


class Report:
    def __init__(self):
        self.counts = collections.Counter()
        self.worst = {}

    def check(self, name, passed, detail=""):
        self.counts["passed" if passed else "failed"] += 1
        verdict = "ok    " if passed else "FAILED"
        print(f"{verdict} {name}{': ' if detail else ''}{detail}", flush=True)
        return passed

    def skip(self, name, reason):
        self.counts["skipped"] += 1
        print(f"skipped {name}: {reason}", flush=True)

    def within(self, kind, name, error, limit):
        """Checks `error`. The end of the report has the largest error of each `kind`."""
        self.worst[kind] = max(self.worst.get(kind, (0.0, limit)), (error, limit))
        return self.check(f"{name}: {kind}", error <= limit, f"{error:.1e} (limit {limit:.0e})")

    def run(self, name, act, *arguments):
        """Runs `act`. An exception is a failed check; the other checks still run."""
        try:
            act(self, *arguments)
        except Exception as error:  # an exception of any type is reported
            self.check(name, False, f"{type(error).__name__}: {error}")

    def finish(self):
        for kind, (error, limit) in self.worst.items():
            print(f"largest error, {kind}: {error:.2e} (limit {limit:.0e})")
        print(", ".join(f"{self.counts[what]} {what}" for what in ("passed", "failed", "skipped")))
        return 1 if self.counts["failed"] or not self.counts["passed"] else 0


def relative(ours, theirs):
    return abs(ours - theirs) / abs(theirs)


def largest(ours, theirs):
    """max |a - b| / max |b|"""
    ours, theirs = ours.double(), theirs.double()
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def weights_of(directory):
    return {name: tensor for path in sorted(directory.glob("*.safetensors"))
            for name, tensor in load_file(path).items()}


def same_tensors(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name])
        for name in theirs)


# ---------------------------------------------------------------------------------------- fixtures


def check_fixture(report, family, folder):
    committed, made = make_fixtures.FIXTURES / family, folder / family
    make_fixtures.make(family, folder)
    configs = [json.loads((path / "config.json").read_text()) for path in (committed, made)]
    for config in configs:
        config.pop("transformers_version")
    report.check(f"fixture {family}: config.json", configs[0] == configs[1])
    error = 0.0
    for file in ("model", "expected"):
        old, new = (load_file(path / f"{file}.safetensors") for path in (committed, made))
        if not report.check(f"fixture {family}: tensors of {file}", old.keys() == new.keys()):
            return
        # This statistic of bf16 changes by a part of its value if the order of a sum changes.
        spread = old.pop("bf16_error", None), new.pop("bf16_error", None)
        if spread[0] is not None:
            ratio = (spread[1] / spread[0]).item()
            report.check(f"fixture {family}: bf16 error", 0.5 < ratio < 2, f"ratio {ratio:.3f}")
        error = max(error, *(largest(new[name], old[name]) for name in old))
    report.within("fixtures made again", family, error, FIXTURES)


# --------------------------------------------------------------------------- import and export


class Case:
    """Case holds the model of a family for this seed, made by `transformers`, and tokens for it."""

    def __init__(self, family, seed, folder, lockstep):
        rng = random.Random(f"{family} {seed}")
        self.family, self.lockstep, self.folder, self.rng = family, lockstep, folder, rng
        folder.mkdir()
        self.shape = models.Shape(family, rng)
        self.model = models.random_model(self.shape, rng.randrange(1 << 30))
        self.held_out, self.held_out_shards = self.tokens("held_out", rng.randrange(5, 40))

    def tokens(self, name, count):
        """Returns windows of random tokens, and their shards. The last tokens fill no window."""
        folder = self.folder / name
        folder.mkdir()
        length = count * self.shape.length + 1 + self.rng.randrange(self.shape.length)
        tokens = numpy.random.default_rng(self.rng.randrange(1 << 30)).integers(
            self.shape.vocabulary, size=length)
        # Half of all tokens have one of 7 values, so that the models of later checks can learn.
        tokens[::2] %= 7
        return models.windows(tokens, self.shape.length), write_shards(folder, self.rng, tokens)

    def loss(self, model):
        return self.lockstep.loss(model, self.held_out_shards, self.shape.length)

    def same_logits(self, ours, theirs):
        """Returns whether `transformers` computes the same bits of all logits for both directories."""
        ours, theirs = models.load(ours), models.load(theirs)
        inputs = self.held_out[:3, :-1]
        with torch.no_grad():
            return ours.dtype == theirs.dtype and torch.equal(ours(inputs).logits,
                                                              theirs(inputs).logits)


def check_directory(report, case, dtype, sharded):
    """Evaluates, imports and exports one form of the directory, and compares the results."""
    form = f"{dtype} {'sharded' if sharded else 'single'}"
    name = f"{case.family}, {form}"
    stored = copy.deepcopy(case.model).to(torch.float32 if dtype == "fp32" else torch.bfloat16)
    saved, run, out, rounded = (case.folder / f"{form.replace(' ', '_')}_{end}"
                                for end in ("saved", "run", "out", "rounded"))
    size = sum(p.numel() * p.element_size() for p in stored.parameters())
    stored.save_pretrained(saved, max_shard_size=size // 3 if sharded else size * 2)
    files = len(list(saved.glob("*.safetensors")))
    report.check(f"{name}: number of files of transformers", (files > 1) == sharded, f"{files}")

    expected = models.evaluate(models.load(saved), case.held_out)
    ours = case.loss(saved)
    report.within("loss of imported weights", name, relative(ours, expected), LOSS)
    case.lockstep.import_(saved, run)
    report.check(f"{name}: the imported run has the loss of the directory", case.loss(run) == ours)

    case.lockstep.export(run, out, dtype)
    report.check(f"{name}: exported tensors have the same bits",
                 same_tensors(weights_of(out), weights_of(saved)))
    report.check(f"{name}: transformers gives the export the same logits",
                 case.same_logits(out, saved))
    if dtype == "bf16":
        return
    case.lockstep.export(saved, rounded, "bf16")
    expected = {key: tensor.bfloat16() for key, tensor in weights_of(saved).items()}
    report.check(f"{name}: exported as bf16, each weight is rounded to nearest",
                 same_tensors(weights_of(rounded), expected))


def generated(directory, prompt):
    """Returns greedily generated tokens, up to an end id of `directory`."""
    model = models.load(directory)
    room = model.config.max_position_embeddings - prompt.shape[1]
    made = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=min(16, room), do_sample=False)
    return made[0, prompt.shape[1]:].tolist()


def check_ends(report, case, file):
    """Checks that end ids of one file of a directory also end the text that `transformers` generates from its export.
    Each of the two files of the export must suffice."""
    saved, run, out = (case.folder / f"ends_{file[0]}_{end}" for end in ("saved", "run", "out"))
    case.model.float().save_pretrained(saved)
    prompt = case.held_out[:1, :2]
    for name in ("generation_config.json", "config.json"):
        path = saved / name
        config = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(config | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))))
    free = generated(saved, prompt)
    ends = [free[len(free) // 2], free[-2]]
    expected = free[:min(free.index(token) for token in ends) + 1]
    if file == "config.json":
        (saved / "generation_config.json").unlink()
    config = json.loads((saved / file).read_text())
    (saved / file).write_text(json.dumps(config | {"eos_token_id": ends, "pad_token_id": 0}))
    (saved / "chat_template.jinja").write_text("{{ messages }}")
    case.lockstep.import_(saved, run)
    case.lockstep.export(run, out, "fp32")
    name = f"{case.family}, ids of {file}"
    report.check(f"{name}: end the export's text", len(expected) < len(free) and generated(out, prompt) == expected,
                 f"{len(expected)} of {len(free)} tokens")
    report.check(f"{name}: the export has the chat template", (out / "chat_template.jinja").read_text() == "{{ messages }}")
    (out / "generation_config.json").unlink()
    report.check(f"{name}: end it by config.json alone", generated(out, prompt) == expected)


# ---------------------------------------------------------------------------------------- training


def columns(metrics):
    return [step["loss"] for step in metrics], [step["grad_norm"] for step in metrics]


def check_steps(report, name, metrics, recipe, expected):
    report.check(f"{name}: number of steps",
                 [step["step"] for step in metrics] == list(range(1, training.STEPS + 1)))
    errors = expected.errors(*columns(metrics))
    clipped = training.clipped(recipe, expected.grad_norms)
    report.check(f"{name}: clipping acts on some steps", 0 < clipped < training.STEPS,
                 f"{clipped} of {training.STEPS}")
    report.within("loss of each step of AdamW", name, errors[0], LOSS)
    report.within("gradient norm of each step", name, errors[1], GRAD_NORM)
    report.within("learning rate of each step", name,
                  max(abs(step["learning_rate"] - recipe.rate(step["step"]))
                      for step in metrics) / recipe.learning_rate, RATE)


def check_exported_run(report, case, name, run):
    """Compares the loss of an exported run in `transformers` with `lockstep eval` of the run."""
    out = run.with_name(run.name + "_out")
    case.lockstep.export(run, out, "fp32")
    exported = models.evaluate(models.load(out), case.held_out)
    report.within("loss of the exported run", name, relative(case.loss(run), exported), LOSS)
    return exported


def check_rank_files(report, case, name, run, ranks):
    """Compares the files that the ranks of a run saved with its export."""
    checkpoint, = (run / "checkpoints").glob("step-*")
    files, tensors = rank_files.read(checkpoint)
    report.check(f"{name}: the package finds in rank files what the manifest lists", files == ranks,
                 f"{len(tensors)} tensors in {files} files")
    if case.family != "gpt2":  # its exported matrices are fused and transposed
        weights = {key: tensor for key, tensor in tensors.items() if "/" not in key}
        exported = rank_files.tensors_of_all(run.with_name(run.name + "_out"))
        report.check(f"{name}: exported weights equal those of the rank files", weights == exported)


def check_ranks(report, case, tables, start):
    """Checks a run of several ranks, each of which saves its own slices."""
    shape = case.shape
    tensor = next((t for t in (2, 3) if all(
        n % t == 0 for n in (shape.heads, shape.kv_heads, shape.mlp_width))), 1)
    ranks = tensor * case.rng.randrange(2, 4)
    name = f"{case.family}, trained by {ranks} ranks, {tensor} per matrix"
    if shutil.which("mpirun") is None or case.lockstep.device != "cpu":
        report.skip(name, "mpirun (openmpi-bin) is missing, or the device is one GPU")
        return
    config, run = case.folder / "train_ranks.toml", case.folder / "trained_by_ranks"
    write_toml(config, dict(tables, layout=dict(tensor=tensor)))
    case.lockstep.train(config, run, start, ranks)
    check_exported_run(report, case, name, run)
    check_rank_files(report, case, name, run, ranks)


def check_training(report, case):
    name = f"{case.family}, trained"
    data, shards = case.tokens("train", case.rng.randrange(20, 60))
    model, recipe, expected = training.draw(
        case.rng, lambda: models.random_model(case.shape, case.rng.randrange(1 << 30)), data,
        (OWN * LOSS, OWN * GRAD_NORM))
    print(f"       {name}: {recipe}, {len(data)} windows in {len(shards)} shards")
    start = case.folder / "start"
    model.save_pretrained(start)
    if case.rng.random() < 0.5:  # starts from an imported run with the same weights
        case.lockstep.import_(start, case.folder / "start_run")
        start = case.folder / "start_run"

    config, run = case.folder / "train.toml", case.folder / "trained"
    tables = recipe.tables(case.shape, shards)
    write_toml(config, tables)
    metrics = case.lockstep.train(config, run, start)
    check_steps(report, name, metrics, recipe, expected)
    for what, wrong in training.mistakes(recipe):
        error = training.train(model, wrong, data).errors(*columns(metrics))[0]
        report.check(f"{name}: {what} would be detected", error > 2 * LOSS, f"{error:.1e}")

    exported = check_exported_run(report, case, name, run)
    check_rank_files(report, case, name, run, 1)
    report.within("loss after training", name,
                  relative(exported, models.evaluate(expected.model, case.held_out)), LOSS)
    check_ranks(report, case, tables, start)
    config, run = case.folder / "train_bf16.toml", case.folder / "trained_bf16"
    write_toml(config, recipe.tables(case.shape, shards, compute="bf16"))
    case.lockstep.train(config, run, start)
    check_exported_run(report, case, f"{case.family}, trained in bf16", run)


# -------------------------------------------------------------------------------------------------


def check_family(report, family, seed, folder, lockstep):
    case = Case(family, seed, folder, lockstep)
    print(f"       {family}: {case.shape}")
    for dtype in ("fp32", "bf16"):
        for sharded in (False, True):
            report.run(f"{family}, {dtype}, sharded: {sharded}", check_directory, case, dtype,
                       sharded)
    for file in ("generation_config.json", "config.json"):
        report.run(f"{family}, ids of {file}", check_ends, case, file)
    report.run(f"{family}, heads", heads.check, case, LOSS)
    report.run(f"{family}, trained", check_training, case)


def check_safetensors(report, verdict, files, seed):
    script = pathlib.Path(__file__).with_name("safetensors_differential.py")
    done = subprocess.run([sys.executable, script, verdict, str(files), str(seed)], text=True,
                          capture_output=True)
    print(done.stdout + done.stderr, end="")
    report.check(f"safetensors: both readers give the same result for {files} files",
                 done.returncode == 0)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/oracle/run.sh")
    parser.add_argument("--seed", type=int, help="seed of every draw (default: random)")
    parser.add_argument("--family", action="append", choices=models.FAMILIES,
                        help="only this family; repeatable")
    parser.add_argument("--files", type=int, default=5000,
                        help="number of damaged safetensors files (default 5000)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                        help="device on which lockstep trains and evaluates (default cpu)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR",
                        help="keep models, data and runs in this directory")
    parser.add_argument("lockstep", help=argparse.SUPPRESS)
    parser.add_argument("verdict", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"torch {torch.__version__}, transformers {transformers.__version__}; --seed {seed}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    report = Report()
    families = arguments.family or models.FAMILIES
    lockstep = Lockstep(arguments.lockstep, arguments.device)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for family in families:
            report.run(f"fixture {family}", check_fixture, family, folder / "fixtures")
        for family in families:
            report.run(family, check_family, family, seed, folder / family, lockstep)
        report.run("config members", config_members.check, families, seed,
                   folder / "config_members", lockstep)
        report.run("byte tokenizer", byte_tokenizer.check, seed, folder / "bytes", lockstep)
        report.run("token shards", token_shards.check, seed, folder / "shards", lockstep)
    report.run("safetensors", check_safetensors, arguments.verdict, arguments.files, seed)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
