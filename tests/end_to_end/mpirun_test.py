#!/usr/bin/env python3
"""Trains under mpirun as users do, and compares with one rank.

usage: mpirun_test.py LOCKSTEP

Exit 77 (skipped) without mpirun.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tiny_run import configuration, metrics, numbers, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   LC_ALL="C")
for name in list(ENVIRONMENT):  # this test may itself run under a launcher
    if name.startswith(("OMPI_COMM", "PMIX_", "SLURM_")):
        del ENVIRONMENT[name]

# Ranks yield while they wait for each other. If other tests compute in the same session, each yield costs a
# time slice (a run of 4 s took 150 s). Sessions share the CPU cores evenly.
ALONE = dict(env=ENVIRONMENT, start_new_session=True)

failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


class Job:
    """`lockstep train` on some ranks."""

    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, folder

    def command(self, config, run, ranks, settings):
        train = [self.lockstep, "train", str(config), "--run", str(run), "--device", "cpu",
                 "--extend"]  # tests give a run more steps
        for setting in settings:
            train += ["--set", setting]
        if ranks == 1:
            return train
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] + train

    def run(self, config, run, ranks, *settings):
        done = subprocess.run(self.command(config, run, ranks, settings), **ALONE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=240)
        return done.returncode, done.stdout


def close(a, b):
    return abs(a - b) <= 1e-5 * abs(b)


def same_losses(found, expected):
    return len(found) == len(expected) and all(
        f[0] == e[0] and close(f[1], e[1]) and close(f[2], e[2]) and
        (e[3] is None or close(f[3], e[3])) for f, e in zip(found, expected))


def check_rows(lockstep, folder, job, config):
    """Documents in rows, with masked prompts, and a mixture have the losses of one rank."""
    lines = [json.dumps({"prompt": f"what is {i}? ", "response": f"{i * 7919 % 1000}"}) for i in range(120)]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    subprocess.run([lockstep, "data", "pack", str(folder / "pairs.jsonl"), "--prompt-field", "prompt",
                    "--response-field", "response", "--tokenizer", "bytes", "--out", str(folder / "pairs")],
                   check=True, capture_output=True)
    mixture = ["data.train=[]", 'data.source=[{path = "%s", weight = 2}, {path = "%s", weight = 1.5}]'
               % (folder / "data" / "train", folder / "pairs")]
    rows = {"packed": [f"data.train={folder / 'pairs'}"],
            "mixture": [*mixture, "data.rows=windows", "data.shuffle_shards=1", "data.document_mask=true"],
            "packed_mixture": mixture}
    for name, settings in rows.items():
        settings = [*settings, "train.steps=12"]  # more than an epoch of pairs
        code, said = job.run(config, folder / f"one_{name}", 1, *settings)
        expect(code == 0, f"{name} on one rank ends with {code}: {said[-500:]}")
        expected = numbers(folder / f"one_{name}")
        for ranks, layout in ((2, []), (3, ["layout.sharding=optimizer"]), (4, ["layout.tensor=2"])):
            run = folder / f"{name}_{ranks}"
            code, said = job.run(config, run, ranks, *settings, *layout)
            expect(code == 0 and same_losses(numbers(run), expected),
                   f"{name} on {ranks} ranks: {code}, {numbers(run)} is not {expected}: {said[-300:]}")


def check_length(folder, job, config):
    """Rows whose length changes have the losses of one rank, with or without another stop."""
    for name, ranks, parts in (("one", 1, [(32, 6), (64, 12)]), ("two", 2, [(32, 6), (64, 9), (64, 12)])):
        for length, steps in parts:
            code, said = job.run(config, folder / f"length_{name}", ranks, f"train.sequence_length={length}",
                                 f"train.steps={steps}", "schedule.kind=constant")
            expect(code == 0, f"rows of {length} on {ranks} ranks: {code}: {said[-500:]}")
    one, two = numbers(folder / "length_one"), numbers(folder / "length_two")
    expect(len(one) == 12 and same_losses(two, [(*step[:3], None) for step in one]),
           f"rows of another length on 2 ranks: {two} is not {one}")


def check_addresses(folder, job, config):
    """A small model trains under any `ulimit -v` of at least 1 GiB (Open MPI needs 0.6 GiB), powers of two or not."""
    for ranks, threads in ((1, 4), (2, 2)):
        for mib in (1025, 3000, 24000):
            train = job.command(config, folder / f"limit_{ranks}_{threads}_{mib}", ranks,
                                ["train.steps=1", f"train.threads={threads}"])
            at = train.index(job.lockstep)
            train[at:at] = ["bash", "-c", f'ulimit -v {1024 * mib}; exec "$@"', "limit"]
            done = subprocess.run(train, **ALONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
            expect(done.returncode == 0, f"{ranks} x {threads} threads in {mib} MiB of addresses: {done.stdout[-300:]}")


def check_more_addresses(folder, job, config):
    """If a limit of addresses suffices, each larger one does."""
    suffices = None
    for mib in range(280, 322, 6):
        train = job.command(config, folder / f"more_{mib}", 1, ["train.steps=1", "train.threads=4"])
        train = ["bash", "-c", f'ulimit -v {1024 * mib}; exec "$@"', "limit", *train[train.index(job.lockstep):]]
        done = subprocess.run(train, **ALONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        expect(done.returncode == 0 or suffices is None, f"{mib} MiB, but {suffices} suffice: {done.stdout[-500:]}")
        if done.returncode == 0:
            suffices = mib
    expect(suffices is not None, "no limit up to 320 MiB suffices")


def check_few_addresses(folder, job, config):
    """If the limit is too low for a run, the error names it, whether a map, the heap or a thread fails first."""
    codes = set()
    for mib in range(32, 140, 9):
        train = job.command(config, folder / f"few_{mib}", 1, ["train.steps=1", "train.threads=3"])
        train = ["bash", "-c", f'ulimit -v {1024 * mib}; exec "$@"', "limit", *train[train.index(job.lockstep):]]
        done = subprocess.run(train, **ALONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        said = done.stdout[-500:]
        codes.add(done.returncode)
        is_named = done.returncode in (75, 78) and "`ulimit -v`" in said
        expect(done.returncode == 0 or is_named or "shared libraries" in said, f"{mib} MiB: {done.returncode}: {said}")
    expect({0, 75, 78} <= codes, f"limits that are met in several ways: {codes}")


def check_launcher_gone(job, config):
    """A rank that waits in MPI_Init ends after mpirun has ended, although it gets no message."""
    asked = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", "env"], **ALONE, capture_output=True, text=True)
    silent = socket.create_server(("127.0.0.1", 0))  # replaces mpirun: it accepts the connection of the rank, and sends nothing
    environment = dict(ENVIRONMENT)
    for line in sorted(asked.stdout.splitlines()):
        name, _, value = line.partition("=")
        if name.startswith(("OMPI", "PMIX")):
            environment[name] = value
        if name.startswith("PMIX_SERVER_URI"):
            environment[name] = f"{value.split(';')[0]};tcp4://127.0.0.1:{silent.getsockname()[1]}"
    launcher = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", launcher] + job.command(config, job.folder / "alone", 1, []),
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rank = int(process.stdout.readline())
    connection, _ = silent.accept()
    process.kill()
    begin = time.time()
    while pathlib.Path(f"/proc/{rank}").exists() and time.time() < begin + 60:
        time.sleep(0.1)
    took = time.time() - begin
    if took >= 60:
        os.kill(rank, signal.SIGKILL)
    said = process.communicate()[1]
    connection.close()
    silent.close()
    expect(4 < took < 60 and says("launch.gone", pid=process.pid) in said, f"its launcher has gone: {took:.0f} s: {said}")


def main():
    lockstep = sys.argv[1]
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return check(lockstep, folder)
    finally:
        shutil.rmtree(folder)


def check(lockstep, folder):
    pack(lockstep, folder)
    configs = {family: configuration(folder, family) for family in ("gpt2", "llama3")}
    job = Job(lockstep, folder)
    check_addresses(folder, job, configs["gpt2"])
    check_more_addresses(folder, job, configs["gpt2"])
    check_few_addresses(folder, job, configs["gpt2"])
    one = {}
    for family, config in configs.items():
        code, said = job.run(config, folder / f"one_{family}", 1)
        expect(code == 0, f"one rank ends with {code}: {said[-500:]}")
        one[family] = numbers(folder / f"one_{family}")

    cases = [  # family, ranks, settings
        ("llama3", 2, []),
        ("llama3", 4, ["layout.tensor=2"]),
        ("gpt2", 4, ["layout.tensor=4", "layout.tensor_chunks=2"]),
        ("gpt2", 4, ["layout.replicate=2", "layout.sharding=optimizer", "layout.reduce=nccl"]),
        ("llama3", 3, ["layout.sharding=gradients"]),
        ("gpt2", 2, ["layout.sharding=none"]),
        ("llama3", 8, ["layout.replicate=2", "layout.tensor=2"]),
        ("gpt2", 8, ["layout.sharding=gradients", "train.recompute=block"]),
    ]
    for number, (family, ranks, settings) in enumerate(cases):
        run = folder / f"case_{number}"
        code, said = job.run(configs[family], run, ranks, *settings)
        what = f"{family} on {ranks} ranks, {settings}"
        expect(code == 0, f"{what}: ends with {code}: {said[-500:]}")
        expect(says("launch.started", launcher="mpirun", rank=0, ranks=ranks) in said, f"{what}: the log says who started it")
        expect(len(re.findall(f"^{pattern('step.of', step=6, steps=6)} 100", said, re.MULTILINE)) == 1,
               f"{what}: only one rank prints: {said[-700:]}")
        expect(same_losses(numbers(run), one[family]),
               f"{what}: {numbers(run)} is not {one[family]}")
        expect([line["step"] for line in metrics(run) if "slowest_rank" in line] == [6],
               f"{what}: ranks compare their times after the last step")

    check_rows(lockstep, folder, job, configs["llama3"])

    check_length(folder, job, configs["llama3"])

    # A run that is stopped by a signal and resumed has the losses of an uninterrupted run.
    settings = ["layout.tensor=2", "layout.tensor_chunks=2", "layout.keep_gathered=1", "precision.compute=bf16",
                "layout.reduce=bf16", "precision.fp8=tensor", "train.steps=100", "eval.every_steps=0"]
    run = folder / "stopped"
    process = subprocess.Popen(job.command(configs["llama3"], run, 4, settings) +
                               ["--checkpoint-files", "node"], **ALONE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while time.time() < deadline and len(numbers(run)) < 5:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=60)[1].decode(errors="replace")
    expect(process.returncode == 75, f"stopped by SIGUSR1: ends with {process.returncode}")
    expect(says("train.stopping") in said, f"it stops at SIGUSR1: {said[-900:]}")
    stopped = len(numbers(run))
    expect(5 <= stopped < 100, f"stopped at step {stopped}: {said[-300:]}")
    files = sorted(path.name for path in (run / "checkpoints" / f"step-{stopped:08}").iterdir())
    expect(files == ["manifest.json", "node-rank-00000.safetensors"], f"one file per host: {files}")
    code, said = job.run(configs["llama3"], run, 4, *settings)
    expect(says("train.goes_on", step=stopped) in said, f"the same command resumes: {said[-500:]}")
    expect(said.count(says("log.warning") + " precision.fp8 ") == 1, f"one rank warns for all: {said[-900:]}")
    job.run(configs["llama3"], folder / "unstopped", 4, *settings)
    expect(numbers(run) == numbers(folder / "unstopped"),
           "a stopped run has other losses than an uninterrupted one")

    # A run is stopped in an evaluation that would take a minute.
    (folder / "long.txt").write_text((folder / "text.txt").read_text() * 200)
    subprocess.run([lockstep, "data", "pack", str(folder / "long.txt"), "--tokenizer", "bytes", "--out",
                    str(folder / "long")], check=True, capture_output=True)
    run = folder / "evaluating"
    settings = [f"data.validation={folder / 'long'}", "eval.every_steps=2", "eval.tokens=0", "log.every_steps=1"]
    process = subprocess.Popen(job.command(configs["llama3"], run, 2, settings), **ALONE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while says("step.loss") not in process.stderr.readline().decode(errors="replace"):
        pass
    time.sleep(2)  # step 2 takes milliseconds
    begin = time.time()
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=120)[1].decode(errors="replace")
    expect(process.returncode == 75 and time.time() - begin < 10 and len(numbers(run)) == 2,
           f"stopped in an evaluation: {process.returncode} after {time.time() - begin:.1f} s: {said[-300:]}")

    check_launcher_gone(job, configs["llama3"])

    # All ranks reject a wrong configuration with its exit code; one rank or each reports it.
    code, said = job.run(configs["llama3"], folder / "refused", 4, "layout.tensor=3")
    expect(code == 78 and says("layout.started", product="= 3", ranks=4) in said, f"tensor 3 of 4: {code} {said}")
    code, said = job.run(configs["llama3"], folder / "refused", 3, "layout.tensor=3")
    expect(code == 78 and says("layout.these_do", sizes="1, 2, 4") in said, f"4 heads over 3: {code} {said}")
    expect(not (folder / "refused").exists(), "a refused run leaves its directory")
    code, said = job.run(configs["llama3"], folder / "stopped", 4, *settings, "model.layers=3")
    expect(code == 78 and re.search(r"\bmodel\.layers\b.*\b3\b", said), f"another model: {code} {said}")
    expect(says("train.stopping") not in said, f"it stops at mpirun's SIGTERM: {said}")
    both = job.command(configs["llama3"], folder / "refused", 2, [])
    at = both.index("-n")
    different = both[:at] + ["-n", "1"] + both[at + 2:] + [":", "-n", "1"] + both[at + 2:] + [
        "--set", "train.seed=7"]
    done = subprocess.run(different, **ALONE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60)
    differ = pattern("ranks.differ", what="train.seed", value=1, rank=0, host="[^)]*", other_value=7, other=1)
    expect(done.returncode == 78 and re.search(differ, done.stdout) is not None,
           f"another seed on rank 1: {done.returncode} {done.stdout[-400:]}")
    print(f"{len(cases)} layouts, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
