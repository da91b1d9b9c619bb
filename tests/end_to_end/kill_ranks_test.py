#!/usr/bin/env python3
"""Runs of two ranks under mpirun that are killed many times end with the bits of an uninterrupted run.

usage: kill_ranks_test.py LOCKSTEP KILLS

SIGKILL ends one rank, both or mpirun, during the start or during steps and saves. If a host is so busy
that ranks do not answer each other for seconds, a run also ends by itself, which does not count. Exit 77
(skipped) without mpirun.
"""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from deaths_test import processes_of
from mpirun_test import ENVIRONMENT, Job, expect, failures
from tiny_run import configuration, numbers, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

RANKS = 2
RUNS = 4  # in parallel, because mpirun waits a second for ranks to end; half of them save in a local directory
SECONDS_TO_END = 60
SETTINGS = ["train.micro_batch=1", "train.threads=1", "schedule.kind=constant",
            "schedule.warmup_steps=4",  # the default depends on the number of steps
            "eval.every_steps=0"]


class Killed:
    """A run, and the counts of its killed processes."""

    def __init__(self, job, config, run, tiers):
        self.job, self.config, self.run, self.log = job, config, run, run.with_suffix(".log")
        self.local, self.archive = run.with_suffix(".local"), run.with_suffix(".archive")
        self.settings = SETTINGS + ["checkpoint.every_steps=1"]
        if tiers:
            self.settings += [f"checkpoint.local_directory={self.local}", "checkpoint.keep_every_steps=5",
                              f"checkpoint.archive_directory={self.archive}"]
        self.kills = {"one rank": 0, "both ranks": 0, "the launcher": 0}
        self.slowest = 0

    def said(self):
        return self.log.read_text(errors="replace")

    def checkpoints(self):
        """The paths of checkpoints by step. The local directory has the files of all ranks, which are on this host."""
        places = [self.run / "checkpoints", *self.local.glob("*")]
        return {int(path.name[5:]): path for place in places for path in place.glob("step-????????")}

    def saved(self):
        """The newest saved step; 0: none."""
        return max(self.checkpoints(), default=0)

    def start(self):
        settings = self.settings + ["train.steps=1000000000"]
        with open(self.log, "w") as log:
            return subprocess.Popen(self.job.command(self.config, self.run, RANKS, settings),
                                    env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=log)

    def wait_for(self, process, condition):
        while process.poll() is None and not condition():
            time.sleep(0.02)

    def kill(self, process, victim):
        if process.poll() is not None:
            expect(process.returncode == 75 and re.search(pattern("end.silent"), self.said()),
                   f"it ended by itself with {process.returncode}: {self.said()[-2000:]}")
            return "its own will"
        pids = list(processes_of(self.run).values())
        if victim == "the launcher":
            pids = [process.pid]
        elif victim == "one rank":
            pids = random.sample(pids, min(1, len(pids)))
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # mpirun was faster
        self.kills[victim] += 1
        return victim

    def wait_for_all(self, process, victim):
        """Waits until no process is left. Kills them if this takes too long."""
        begin = time.time()
        try:
            process.wait(timeout=SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
        while processes_of(self.run) and time.time() < begin + SECONDS_TO_END:
            time.sleep(0.02)
        took = time.time() - begin
        self.slowest = max(self.slowest, took)
        left = processes_of(self.run)
        expect(not left and took < SECONDS_TO_END,
               f"{took:.0f} s after the death of {victim} ranks {left} or mpirun live: {self.said()[-2000:]}")
        for pid in left.values():
            os.kill(pid, signal.SIGKILL)

    def start_and_kill(self):
        before = self.saved()
        process = self.start()
        victim = random.choice(list(self.kills))
        if random.random() < 0.5:
            # Open MPI 4.1.4 waits forever for a rank that dies while it connects to mpirun.
            self.wait_for(process, lambda: says("launch.by_mpi") in self.said() or (
                victim == "the launcher" and len(processes_of(self.run)) == RANKS))
            time.sleep(random.uniform(0, 0.5))
        else:
            self.wait_for(process, lambda: re.search(pattern("train.saved"), self.said()))
            time.sleep(random.uniform(0, 0.1))
        self.wait_for_all(process, self.kill(process, victim))
        announced = max([before] + [int(s) for s in re.findall(pattern("train.saved", step=r"(\d+)"), self.said())])
        newest = self.saved()
        expect(newest >= announced, f"step {newest} is the newest, but step {announced} was logged as saved")
        if newest > 0:
            verified = subprocess.run(
                [self.job.lockstep, "checkpoint", "verify", str(self.checkpoints()[newest])],
                capture_output=True, text=True)
            expect(verified.returncode == 0, f"step {newest}: {verified.stdout}{verified.stderr}")

    def kill_again_and_again(self, kills):
        while sum(self.kills.values()) < kills and not failures:
            self.start_and_kill()


def check(lockstep, kills, folder):
    pack(lockstep, folder)
    config = configuration(folder, "llama3")
    job = Job(lockstep, folder)
    killed = [Killed(job, config, folder / f"killed_{i}", tiers=i % 2 == 1) for i in range(RUNS)]
    begin = time.time()
    with ThreadPoolExecutor(RUNS) as pool:
        list(pool.map(lambda run: run.kill_again_and_again(kills // RUNS), killed))
    counts = [f"{who} {sum(run.kills[who] for run in killed)} times" for who in killed[0].kills]
    print(f"killed {', '.join(counts)} in {sum(run.saved() for run in killed)} steps and "
          f"{time.time() - begin:.0f} s; all had ended after at most "
          f"{max(run.slowest for run in killed):.1f} s")
    if failures:
        return 1
    last = max(run.saved() for run in killed) + 5
    whole = folder / "whole"

    def end(run, settings):
        code, said = job.run(config, run, RANKS, *settings, f"train.steps={last}")
        expect(code == 0, f"{run.name} ends with {code}: {said[-2000:]}")
        return str(run / "checkpoints" / f"step-{last:08}")

    expected = end(whole, SETTINGS + ["checkpoint.every_steps=0"])
    expect(len(numbers(whole)) == last, f"{len(numbers(whole))} losses")
    for run in killed:
        compared = subprocess.run([lockstep, "checkpoint", "diff", end(run.run, run.settings), expected],
                                  capture_output=True, text=True)
        expect(compared.returncode == 0 and f", {says('diff.differ', count=0)}" in compared.stdout,
               f"{run.run.name}: the weights are others: {compared.stdout[-200:]}{compared.stderr}")
        expect(numbers(run.run) == numbers(whole), f"{run.run.name}: the losses are others")
        for archive in run.archive.glob("*"):
            verified = subprocess.run([lockstep, "checkpoint", "verify", archive], capture_output=True,
                                      text=True)
            expect(verified.returncode == 0, f"{archive}: {verified.stdout}{verified.stderr}")
    return 1 if failures else 0


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return check(sys.argv[1], int(sys.argv[2]), folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
