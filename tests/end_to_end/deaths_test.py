#!/usr/bin/env python3
"""If a rank under mpirun dies, stops, stalls or fails, all others abort within seconds and name it.

usage: deaths_test.py LOCKSTEP FAULT_LIBRARY

Exit 77 (skipped) without mpirun.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from mpirun_test import ENVIRONMENT, Job, expect, failures
from tiny_run import configuration, numbers, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

RANKS = 4
SETTINGS = ["layout.tensor=2", "train.steps=1000000", "train.micro_batch=1",
            "checkpoint.every_steps=5", "eval.every_steps=0", "train.stall_seconds=3"]


def processes_of(run):
    """Process ids of the ranks that train in `run`, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment)
        if rank and str(run).encode() in command and b"mpirun" not in command[0]:
            found[int(rank[1])] = int(entry.name)
    return found


class Run:
    """A running job that has saved a checkpoint."""

    def __init__(self, job, config, folder, name, environment=()):
        self.run = folder / name
        self.log = folder / (name + ".log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(job.command(config, self.run, RANKS, SETTINGS),
                                            env=dict(ENVIRONMENT, **dict(environment)),
                                            stdout=subprocess.DEVNULL, stderr=log)
        deadline = time.time() + 60
        while time.time() < deadline and self.process.poll() is None and not list(
                self.run.glob("checkpoints/step-????????")):
            time.sleep(0.05)
        time.sleep(2.5)  # heartbeats report the position of each rank once per second
        self.pids = processes_of(self.run)
        expect(sorted(self.pids) == list(range(RANKS)), f"{name}: ranks run: {self.pids}\n{self.said()}")

    def expect_end_on_record(self, sentence):
        """Rank 0 has written the reason for the end and the times of the last steps, and the Prometheus file."""
        lines = [json.loads(line) for line in (self.run / "ledger.jsonl").read_text().splitlines()]
        steps = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]
        expect(lines[-1]["event"] == "end" and re.search(sentence, lines[-1]["why"]) is not None
               and lines[-1]["step"] == steps[-1]["step"]
               and max(line.get("last", 0) for line in lines) == steps[-1]["step"],
               f"{self.run.name}: the ledger ends with {lines[-2:]}, the steps with {steps[-1]}")
        page = (self.run / "metrics.prom").read_text()
        expect(re.search(r"^lockstep_running\{.*\} 0$", page, re.MULTILINE) is not None,
               f"{self.run.name}: {page[:500]}")

    def said(self):
        return self.log.read_text(errors="replace")[-3000:]

    def expect_end(self, within, code, sentence, writers):
        """The run ends within `within` seconds, with the exit code and the sentence in the log. The ranks
        `writers` wrote their last operations, and no process stays."""
        name, begin = self.run.name, time.time()
        try:
            ended = self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            expect(False, f"{name}: still runs after {within} s\n{self.said()}")
            for pid in processes_of(self.run).values():
                os.kill(pid, signal.SIGKILL)
            self.process.wait(timeout=30)
            return
        took = time.time() - begin
        if code is not None:
            expect(ended == code, f"{name}: ends with {ended}, not {code}\n{self.said()}")
        expect(re.search(sentence, self.said()) is not None,
               f"{name}: no '{sentence}' in\n{self.said()}")
        for rank in writers:
            file = self.run / "ended" / f"rank-{rank:05}.txt"
            text = file.read_text() if file.exists() else ""
            expect(re.search(sentence, text) is not None and "all_gather" in text,
                   f"{name}: the file of rank {rank}: {text[:1500]}")
        if 0 in writers:
            self.expect_end_on_record(sentence)
        deadline = time.time() + 5
        while processes_of(self.run) and time.time() < deadline:
            time.sleep(0.1)
        expect(not processes_of(self.run), f"{name}: processes stay: {processes_of(self.run)}")
        print(f"{name}: all had ended after {took:.1f} s")


def check_preflight(lockstep, folder, environment):
    """Rank 0 reports the findings until a rank died, even if mpirun ends rank 0 before it notices the death."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", lockstep, "preflight",
               "--device", "cpu", "--threads", "1", "--scratch", str(folder), "--cluster-out",
               str(folder / "cluster.json")]
    said = ""
    with subprocess.Popen(command, env=dict(ENVIRONMENT, **environment), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            said += line
            if says("preflight.links") in line:
                pids = processes_of(folder)
                os.kill(pids[0], signal.SIGTERM)
                os.kill(pids[1], signal.SIGKILL)
    died = f"{pattern('end.rank', rank=1)} {says('end.died')}"
    expect(process.returncode != 0 and re.search(died, said) is not None
           and re.search(f"^{pattern('check.memory')} +[0-9]", said, re.MULTILINE) is not None,
           f"preflight: ends with {process.returncode}\n{said}")


def check(lockstep, fault, folder):
    pack(lockstep, folder)
    config = configuration(folder, "llama3")
    job = Job(lockstep, folder)
    who = lambda run, rank: pattern("end.rank", rank=rank, host="[^)]*", pid=run.pids.get(rank))
    silent = pattern("end.silent", seconds=r"\d.*")

    # mpirun also notices the death. By default it gives the other ranks one second to report.
    patient = {"OMPI_MCA_odls_base_sigkill_timeout": "3"}
    killed = Run(job, config, folder, "killed", patient)
    os.kill(killed.pids[2], signal.SIGKILL)
    killed.expect_end(10, None, f"{who(killed, 2)} {says('end.died')}, {pattern('end.step')}", [0, 1, 3])

    killed_0 = Run(job, config, folder, "killed_0", patient)
    os.kill(killed_0.pids[0], signal.SIGKILL)
    gone = f"({says('end.died')}|{says('end.lost')}): "
    killed_0.expect_end(10, None, f"{who(killed_0, 0)} {gone}", [1, 2, 3])

    # mpirun does not notice that a process has stopped.
    stopped = Run(job, config, folder, "stopped")
    os.kill(stopped.pids[1], signal.SIGSTOP)
    stopped.expect_end(10, 75, f"{who(stopped, 1)} {silent}", [0, 2, 3])

    # Each rank notices by itself, within a second of the others; mpirun waits 3 s for the stopped one.
    first = Run(job, config, folder, "stopped_0", patient)
    os.kill(first.pids[0], signal.SIGSTOP)
    first.expect_end(13, 75, f"{who(first, 0)} {silent}", [1, 2, 3])

    # A disk never answers: the process lives, and the other ranks wait for it at the next save.
    marker = folder / "from_now_on"
    faulty = {"LD_PRELOAD": str(fault), "FAULT": "hang", "FAULT_RANK": "3",
              "FAULT_FROM": str(marker)}
    stalled = Run(job, config, folder, "stalled", faulty)
    marker.write_text("")
    still, step = pattern("end.still", seconds=r"3(\.\d)?"), pattern("end.step", step=r"\d*[05]")
    waiting = pattern("end.waiting", number=r"\d+", waiting="0-2")
    stalled.expect_end(30, 75, f"{who(stalled, 3)} {still}, {step}, {waiting}", [0, 1, 2, 3])
    marker.unlink()

    # A rank with an error reports it, and the run has the exit code of the error.
    failed = Run(job, config, folder, "failed", dict(faulty, FAULT="error", FAULT_RANK="2"))
    marker.write_text("")
    cannot_read = says("file.cannot_read", why="Input/output error")
    failed.expect_end(10, 74, f"{says('end.of_rank', rank=2)} {says('log.error')} .*{cannot_read}", [])
    marker.unlink()

    # The same command resumes from the last checkpoint.
    at = [int(p.name[5:]) for p in (failed.run / "checkpoints").glob("step-????????")]
    code, said = job.run(config, failed.run, RANKS, *SETTINGS[:1], *SETTINGS[2:],
                         f"train.steps={max(at) + 3}")
    expect(code == 0 and says("train.goes_on", step=max(at)) in said, f"resumes: {code} {said[-800:]}")
    expect(numbers(failed.run)[-1][0] == max(at) + 3, "the last step is missing")
    check_preflight(lockstep, folder, patient)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return check(sys.argv[1], sys.argv[2], folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
