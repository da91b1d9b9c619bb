#!/usr/bin/env python3
"""A process of a run is stopped (SIGSTOP) while it saves, another start takes over the run, and the first one
goes on. It ends with exit code 75, and changes nothing of the other: checkpoints, metrics or final weights.

usage: takeover_test.py LOCKSTEP STOP_LIBRARY SECONDS

The file `lock` is removed meanwhile, as if the file server had lost its lock. Each point of STOPS is a run, all in
parallel. A stopped process goes on after SECONDS, and after the other start has saved and deleted checkpoints.
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
import unittest

import tiny_run
from mpirun_test import ALONE, ENVIRONMENT

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern  # noqa: E402

LOCKSTEP, LIBRARY, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
STEPS, EVERY = 160, 10
PATIENCE = 240  # seconds

# The first process stops before this call on this file.
STOPS = {
    "before a file of a checkpoint": ("open", "saving/step-00000030/rank-00000.safetensors"),
    "before the manifest": ("rename", "saving/step-00000030/manifest.json"),
    "before the commit": ("rename", "checkpoints/step-00000030"),
    "before a deletion": ("rename", "deleted/step-00000010"),
    "before a purge": ("rename", "deleted/step-00000010.old.tmp"),
    "before a line of metrics": ("write", "metrics.jsonl"),
}


def settings(**more):
    all_of = {"train.steps": STEPS, "checkpoint.every_steps": EVERY, "checkpoint.keep_last": 2,
              "eval.every_steps": 0, **more}
    return [word for key, value in all_of.items() for word in ("--set", f"{key}={value}")]


def wait_until(condition, what):
    deadline = time.time() + PATIENCE
    while not condition():
        if time.time() > deadline:
            raise AssertionError(what)
        time.sleep(0.02)


def is_stopped(process):
    return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Run:
    """A run of which the first process stops."""

    def __init__(self, config, folder, call="", path=""):
        self.config, self.folder, self.logs = config, folder, []
        stop = {"LD_PRELOAD": LIBRARY, "STOP_CALL": call, "STOP_PATH": path}
        self.first = self.start(stop if call else {})

    def start(self, environment):
        self.logs.append(self.folder.with_suffix(f".log{len(self.logs)}"))
        with open(self.logs[-1], "w") as log:
            return subprocess.Popen([LOCKSTEP, "train", self.config, "--run", self.folder, "--device", "cpu", *settings()],
                                    stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                                    env=dict(ENVIRONMENT, **environment))

    def said(self, start):
        lines = self.logs[start].read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if not re.match(pattern("step.of"), line))

    def checkpoints(self):
        return sorted(path.name for path in self.folder.glob("checkpoints/step-*"))


def command(*words):
    return subprocess.run([LOCKSTEP, *map(str, words)], **ALONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=PATIENCE)


class Takeover(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        tiny_run.pack(LOCKSTEP, self.folder)
        self.config = tiny_run.configuration(self.folder, "llama3")

    def test_a_stale_process_ends_and_changes_nothing(self):
        whole = Run(self.config, self.folder / "whole")
        runs = {name: Run(self.config, self.folder / f"run-{number}", *stop)
                for number, (name, stop) in enumerate(STOPS.items())}
        begin = {}
        for name, run in runs.items():
            self.addCleanup(run.first.kill)
            wait_until(lambda: run.first.poll() is not None or is_stopped(run.first), f"{name}: not stopped")
            self.assertIsNone(run.first.poll(), f"{name}: {run.said(0)}")
            begin[name] = time.time()
            (run.folder / "lock").unlink()
            run.second = run.start({})
            self.addCleanup(run.second.kill)
        for number, (name, run) in enumerate(runs.items()):
            if number % 2 == 0:  # the other start has ended; else it goes on
                run.second.wait(timeout=PATIENCE)
            else:
                wait_until(lambda: len(re.findall(pattern("train.saved"), run.said(1))) > 3, f"{name}: no saves")
            time.sleep(max(0, begin[name] + SECONDS - time.time()))
            run.first.send_signal(signal.SIGCONT)
        self.assertEqual(whole.first.wait(timeout=PATIENCE), 0, whole.said(0))
        for name, run in runs.items():
            with self.subTest(name):
                self.assertEqual(run.first.wait(timeout=PATIENCE), 75, run.said(0))
                self.assertRegex(run.said(0), pattern("end.taken_over", epoch=2, pid=run.second.pid))
                self.assertEqual(run.second.wait(timeout=PATIENCE), 0, run.said(1))
                self.check(run, whole)

    def check(self, run, whole):
        newest = [f"step-{step:08}" for step in (STEPS - EVERY, STEPS)]
        self.assertEqual(run.checkpoints(), newest, run.said(0) + run.said(1))
        listed = command("checkpoint", "list", run.folder)
        self.assertEqual(listed.returncode, 0, listed.stdout)
        self.assertEqual(re.findall(r"^step +(\d+)", listed.stdout, re.M), [str(STEPS - EVERY), str(STEPS)])
        same = command("checkpoint", "diff", whole.folder / "checkpoints" / newest[1],
                       run.folder / "checkpoints" / newest[1])
        self.assertEqual(same.returncode, 0, same.stdout)
        self.assertEqual([m["step"] for m in tiny_run.metrics(run.folder)], list(range(1, STEPS + 1)))
        self.assertEqual(tiny_run.numbers(run.folder), tiny_run.numbers(whole.folder))
        events = [json.loads(line)["event"] for line in (run.folder / "ledger.jsonl").read_text().splitlines()]
        self.assertEqual((events.count("start"), events.count("end")), (2, 1), events)
        left = [path for path in run.folder.glob("checkpoints/epochs/**/*") if path.name.startswith("step-")]
        self.assertEqual(left, [])
        # The next start finds nothing to change.
        again = command("train", self.config, "--run", run.folder, "--device", "cpu", *settings())
        self.assertEqual(again.returncode, 0, again.stdout)
        self.assertEqual(run.checkpoints(), newest)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
