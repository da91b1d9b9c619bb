#!/usr/bin/env python3
"""Compares plans with runs on CPUs: twelve runs (models, layouts of 1 to 4 ranks, recompute, micro-batches), and ten more
layouts. Each round of a run is `preflight`, which measures, `plan` from the cluster.json that
it wrote, and `train`.

usage: plan_bench.py LOCKSTEP [--rounds N] [--steps N] [--only TEXT] [--hosts]

--hosts: three runs on two simulated hosts instead, a core each, with a network of 2 Gbit/s (as root).

Prints first the times of plans for 1,024 and 131,072 GPUs. Then, for each run:
- milliseconds of a step, planned and measured (medians), and the median of the rounds' ratios;
- the component that differs most;
- memory, planned and the most that a rank had.
Use an idle machine. Runs with more ranks than processors are left out.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")

MODELS = {
    "3M": {"family": "llama3", "layers": 4, "width": 256, "heads": 4, "mlp_width": 640, "vocabulary": 257},
    "10M": {"family": "gpt2", "layers": 6, "width": 384, "heads": 6, "mlp_width": 1536, "vocabulary": 257},
    "124M": {"family": "gpt2", "layers": 12, "width": 768, "heads": 12, "mlp_width": 3072, "vocabulary": 50257},
}
LENGTH = 256
# Model, type, replicate x shard x tensor, recompute, sequences of a micro-batch, micro-batches of a step, sharding.
RUNS = [
    ("3M", "fp32", (1, 1, 1), "none", 6, 1),
    ("3M", "fp32", (1, 1, 1), "block", 6, 1),
    ("10M", "fp32", (1, 1, 1), "none", 4, 2),
    ("10M", "bf16", (1, 1, 1), "cheap", 8, 1),
    ("124M", "fp32", (1, 1, 1), "none", 1, 1),
    ("10M", "fp32", (1, 2, 1), "none", 4, 2),
    ("10M", "fp32", (2, 1, 1), "none", 4, 1),
    ("10M", "fp32", (1, 1, 2), "none", 4, 1),
    ("3M", "fp32", (1, 2, 1), "cheap", 3, 1),
    ("10M", "fp32", (1, 4, 1), "none", 2, 1),
    ("10M", "fp32", (2, 2, 1), "block", 2, 1),
    ("10M", "fp32", (1, 2, 2), "none", 2, 1),
    # Layouts on which nothing was tuned.
    ("10M", "fp32", (1, 2, 1), "none", 2, 2, "optimizer"),
    ("10M", "fp32", (1, 2, 1), "none", 2, 2, "gradients"),
    ("10M", "fp32", (1, 2, 1), "none", 2, 2, "weights"),
    ("10M", "bf16", (1, 2, 1), "none", 4, 1),
    ("3M", "fp32", (1, 2, 1), "none", 2, 4),
    ("3M", "fp32", (2, 1, 1), "block", 4, 3),
    ("3M", "fp32", (1, 1, 2), "none", 4, 4),
    ("10M", "bf16", (1, 1, 2), "cheap", 4, 2),
    ("3M", "fp32", (1, 2, 2), "none", 2, 2, "gradients"),
    ("10M", "fp32", (2, 1, 2), "none", 2, 2),
]
HOST_RUNS = [
    ("10M", "fp32", (2, 1, 1), "none", 4, 2),
    ("10M", "fp32", (1, 2, 1), "none", 4, 2),
    ("10M", "fp32", (1, 2, 1), "none", 4, 2, "gradients"),
]
LINK = "2gbit"
SKIPPED_STEPS = 3  # the first: memory is touched
TRIES = 10         # of preflight, which fails if other programs use the machine


def pack(lockstep, folder):
    rng = random.Random(1)
    words = "the cat sat on a mat and then it ran away from dog".split()
    text = "\n\n".join(" ".join(rng.choice(words) for _ in range(200)) for _ in range(2000))
    (folder / "text.txt").write_text(text)
    subprocess.run([lockstep, "data", "pack", str(folder / "text.txt"), "--tokenizer", "bytes",
                    "--document-separator", r"\n\n", "--validation", "5%", "--out", str(folder / "data")], check=True, capture_output=True)


def two_hosts():
    """Makes two hosts with a core and a slow link each; returns the command that starts a rank on each."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "launches"))
    import hosts
    hosts.become_head()
    for number, core in zip((1, 2), sorted(os.sched_getaffinity(0))):
        host = hosts.Host(number)
        (hosts.SHARED / host.name / "tmp" / "core").write_text(str(core))
        hosts.sh(*host.on("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", LINK, "burst", "256kb", "latency", "50ms"))
    hostfile, pinned = hosts.SHARED / "hostfile", hosts.SHARED / "pinned"
    hostfile.write_text("n1 slots=1\nn2 slots=1\n")
    pinned.write_text('#!/bin/sh\nexec taskset --cpu-list "$(cat "$TMPDIR/core")" "$@"\n')
    pinned.chmod(0o755)
    ENVIRONMENT.update(OMPI_MCA_plm_rsh_agent=str(hosts.SHARED / "agent"), LOCKSTEP_INTERFACE="eth0", TMPDIR=os.environ["TMPDIR"])
    return hosts.SHARED, [str(pathlib.Path(__file__).parents[2] / "launch" / "cluster" / "mpirun.sh"), str(hostfile), str(pinned)]


class Case:
    def __init__(self, lockstep, folder, number, run, steps, launcher):
        model, dtype, (replicate, shard, tensor), recompute, sequences, micro_batches, *sharding = run
        self.name = (f"{model:4} {dtype} r{replicate} s{shard} t{tensor} {(sharding or ['full'])[0] if shard > 1 else '-':9} "
                     f"recompute {recompute:5} micro-batch {sequences} x {micro_batches}")
        self.lockstep, self.ranks, self.launcher = lockstep, replicate * shard * tensor, launcher
        self.folder = folder / f"run-{number}"
        self.folder.mkdir()
        settings = [f"model.{key}={value}" for key, value in MODELS[model].items()]
        settings += [f"model.max_positions={LENGTH}", f"train.sequence_length={LENGTH}",
                     f"train.micro_batch={sequences}", f"train.recompute={recompute}", f"train.steps={steps}",
                     f"train.batch_tokens={sequences * micro_batches * replicate * shard * LENGTH}",
                     f"layout.replicate={replicate}", f"layout.shard={shard}", f"layout.tensor={tensor}",
                     *(f"layout.sharding={one}" for one in sharding), *(["train.threads=1"] if launcher else []),
                     f"precision.compute={dtype}", "log.every_steps=1",
                     f"checkpoint.every_steps={steps}", f"data.train={folder / 'data' / 'train'}",
                     # At the end: its memory is planned too, its time is no step's.
                     f"eval.every_steps={steps}", "eval.tokens=2048", f"data.validation={folder / 'data' / 'validation'}"]
        self.settings = [word for setting in settings for word in ("--set", setting)]
        self.config = folder / "empty.toml"
        self.config.write_text("")
        self.cluster = self.folder / "cluster.json"
        self.planned, self.measured, self.memory, self.parts = [], [], [], []

    def ranks_of(self, *arguments):
        started = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(self.ranks)] if self.ranks > 1 else []
        if self.launcher:
            started = self.launcher
        return started + [self.lockstep, *arguments, *self.settings, "--device", "cpu"]

    def preflight(self):
        for _ in range(TRIES):
            (self.folder / "preflight.json").unlink(missing_ok=True)
            done = subprocess.run(self.ranks_of("preflight", str(self.config), "--cluster-out", str(self.cluster),
                                                "--scratch", str(self.folder)), env=ENVIRONMENT, capture_output=True, text=True)
            if done.returncode == 0:
                return
            time.sleep(5)
        sys.exit(f"preflight ended {TRIES} times with {done.returncode}:\n{done.stdout}{done.stderr}")

    def plan(self):
        done = subprocess.run([self.lockstep, "plan", str(self.config), *self.settings, "--cluster", str(self.cluster),
                               "--check", "--json"], env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"plan ended with {done.returncode}:\n{done.stderr}")
        return json.loads(done.stdout)

    def train(self):
        """The metrics of its steps, and the most resident bytes of a rank."""
        run = self.folder / f"trained-{len(self.measured)}"
        with open(self.folder / "log.txt", "w") as log:
            process = subprocess.Popen(self.ranks_of("train", str(self.config), "--run", str(run)), env=ENVIRONMENT,
                                       stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)  # of mpirun: with what its ranks used
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit((self.folder / "log.txt").read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return lines[SKIPPED_STEPS:], usage.ru_maxrss * 1024

    def round(self):
        self.preflight()
        plan = self.plan()
        steps, most = self.train()
        self.planned.append(plan["step_seconds"])
        self.measured.append(statistics.median(step["step_seconds"] for step in steps))
        # On processors the arenas of the device are in the process too.
        self.memory.append((sum(part["bytes"] for part in plan["memory"]), most))
        planned = {part["name"]: part["seconds"] for part in plan["components"]}
        found = [name[:-len("_seconds")] for name in steps[0] if name.endswith("_seconds")]
        self.parts.append({name: planned.get(name, 0) - statistics.median(step[name + "_seconds"] for step in steps)
                           for name in found if name in planned or name == "other"})

    def ratio(self):
        return statistics.median(p / m for p, m in zip(self.planned, self.measured))

    def memory_ratio(self):
        return statistics.median(p / m for p, m in self.memory)

    def line(self):
        measured = statistics.median(self.measured)
        apart = {name: statistics.median(parts[name] for parts in self.parts) / measured for name in self.parts[0]}
        largest = sorted(apart.items(), key=lambda part: -abs(part[1]))[:3]
        rounds = " ".join(f"{p / m:.3f}" for p, m in zip(self.planned, self.measured))
        planned, most = self.memory[-1]
        # the ranks of other hosts are no children of this process
        memory = "" if self.launcher else (f"memory {planned / 2**20:.0f} of {most / 2**20:.0f} MiB, ratio "
                                           f"{self.memory_ratio():.3f}; ")
        return (f"{self.name}: plan {1e3 * statistics.median(self.planned):6.1f} ms, run {1e3 * measured:6.1f} ms, ratio "
                f"{self.ratio():.3f} ({rounds}); {memory}of the step: " + ", ".join(f"{n} {100 * s:+.1f}%" for n, s in largest))


def time_plan(lockstep):
    """Times plans with all layouts. The goal is 2 s each."""
    for model, nodes in (("llama3_8b", 128), ("llama3_70b", 16384)):
        time_search(lockstep, model, nodes)


def time_search(lockstep, model, nodes):
    configs = pathlib.Path(__file__).resolve().parents[2] / "configs"
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([lockstep, "plan", configs / f"{model}.toml", "--cluster", configs / "clusters" / "dgx_h100.toml",
                           "--nodes", str(nodes), "--json"], check=True, capture_output=True, text=True)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"plan of {model} on {8 * nodes:,} H100: {wall:.2f} s ({after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s of "
          f"CPU time) for {json.loads(done.stdout)['search']['priced']} layouts that fit", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--hosts", action="store_true")
    asked = parser.parse_args()
    lockstep = str(pathlib.Path(asked.lockstep).resolve())
    time_plan(lockstep)
    shared, launcher = two_hosts() if asked.hosts else (None, [])
    with tempfile.TemporaryDirectory(dir=shared) as temporary:
        folder = pathlib.Path(temporary)
        pack(lockstep, folder)
        cases = [Case(lockstep, folder, i, run, asked.steps, launcher) for i, run in enumerate(HOST_RUNS if asked.hosts else RUNS)]
        cases = [case for case in cases if asked.only in case.name]
        for case in [case for case in cases if case.ranks > os.cpu_count()]:
            print(f"{case.name}: left out, {case.ranks} ranks have a share of {os.cpu_count()} processors", flush=True)
            cases.remove(case)
        for case in cases:
            for _ in range(asked.rounds):
                case.round()
            print(case.line(), flush=True)
    off = [abs(case.ratio() - 1) for case in cases]
    over = sorted(1 / case.ratio() for case in cases)
    if len(over) > 2:
        tenths = statistics.quantiles(over, n=10, method="inclusive")
        print(f"measured / planned time, p10 to p90: {tenths[0]:.3f} to {tenths[8]:.3f}")
    print(f"{len(cases)} runs: step time off by {100 * statistics.mean(off):.1f}% on average, {100 * max(off):.1f}% at most")
    if not launcher:
        off = [abs(case.memory_ratio() - 1) for case in cases]
        print(f"memory off by {100 * statistics.mean(off):.1f}% on average, {100 * max(off):.1f}% at most")


if __name__ == "__main__":
    main()
