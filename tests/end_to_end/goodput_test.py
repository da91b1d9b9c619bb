#!/usr/bin/env python3
"""The ledger of a run accounts for the wall time of its processes, however they end.

usage: goodput_test.py LOCKSTEP ci|full

A run is stopped by a signal, resumes, verifies steps, fails and completes. With `full` it is also killed, which
takes ten seconds, the interval between lines. The test sums the ledger by the rules of docs/formats.md, and
compares the sums with the log and with the lifetimes of the processes.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tiny_run import configuration, metrics, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

SETTINGS = ["schedule.kind=constant", "schedule.warmup_steps=4", "eval.every_steps=50", "checkpoint.every_steps=20",
            "checkpoint.keep_last=1000", "log.every_steps=20"]
KINDS = ["productive", "replayed", "restart", "checkpoint", "data", "evaluation", "idle"]
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def slack_seconds(lockstep):
    """The seconds of a process before and after main, which the ledger cannot measure, on a host with this load."""
    begin = time.time()
    subprocess.run([lockstep, "--version"], check=True, stdout=subprocess.DEVNULL)
    return 2 + 10 * (time.time() - begin)


class Run:
    """A run, and the lifetimes of its processes."""

    def __init__(self, lockstep, folder, name):
        self.config, self.lockstep, self.run = configuration(folder, "llama3"), lockstep, folder / name
        self.log = folder / f"{name}.log"
        self.there = []  # (from, until), since 1970
        self.slack = slack_seconds(lockstep)

    def command(self, *settings, options=()):
        command = [self.lockstep, "train", str(self.config), "--run", str(self.run), "--device", "cpu", "--extend",
                   *options]
        for setting in [*SETTINGS, *settings]:
            command += ["--set", setting]
        return command

    def start(self, *settings, options=(), stop=None, stop_when=lambda: True):
        """Returns the exit code and the log. The process gets the signal `stop` when stop_when() is true."""
        begin = time.time()
        with open(self.log, "w") as out, subprocess.Popen(
                self.command(*settings, options=options), stdout=out, stderr=subprocess.STDOUT) as process:
            while stop is not None and process.poll() is None:
                if stop_when():
                    process.send_signal(stop)
                    break
                time.sleep(0.01)
            code = process.wait(timeout=500)
        self.there.append((begin, time.time()))
        self.slack = max(self.slack, slack_seconds(self.lockstep))
        return code, self.log.read_text()

    def ledger(self):
        text = (self.run / "ledger.jsonl").read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def steps(self):
        return max((m["step"] for m in metrics(self.run)), default=0)


def added_up(lines):
    """Seconds by kind, by the rules of the documentation: each step has one number, which a later start may move."""
    seconds = dict.fromkeys(KINDS, 0.0)
    steps = {}  # step: productive seconds
    last, stepping = None, False
    for line in lines:
        since = 0 if last is None else line["time_seconds"] - last
        last = line["time_seconds"]
        if line["event"] == "start":
            seconds["idle"] += since
            stepping = False
            for step in [s for s in steps if s > line["step"]]:
                seconds["replayed"] += steps.pop(step)
        elif line["event"] == "steps":
            listed = line["step_seconds"] + line["checkpoint_seconds"] + line["evaluation_seconds"]
            seconds["idle" if stepping else "restart"] += since - listed
            stepping = True
            work = line["step_seconds"] - line["data_seconds"]
            count = line["last"] - line["first"] + 1
            for step in range(line["first"], line["last"] + 1):
                steps[step] = work / count
            if count == 0:
                seconds["productive"] += work
            for kind in "checkpoint", "data", "evaluation":
                seconds[kind] += line[f"{kind}_seconds"]
        else:
            seconds["idle" if stepping else "restart"] += since
    seconds["productive"] += sum(steps.values())
    return seconds


def seconds_of(text):
    """The seconds of "1h02m", "58m", "42s"."""
    return sum(int(n) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit] for n, unit in re.findall(r"(\d+)([dhms])", text))


def check_line(said, seconds, restarts):
    """Compares the newest line of the log with the ledger."""
    fields = {kind: rf"(?P<{kind}>\S+)" for kind in KINDS}
    every = list(re.finditer(pattern("goodput.line", share=r"(?P<share>[0-9.]+)", restarts=r"(?P<restarts>\d+)", **fields) + "$",
                             said, re.MULTILINE))
    if not every:
        return expect(False, f"no goodput in the log: {said[-1000:]}")
    parts = every[-1]
    line = parts[0]
    wall = sum(seconds.values())
    expect(abs(float(parts["share"]) - 100 * seconds["productive"] / wall) < 0.06, f"{line} for {seconds}")
    expect(int(parts["restarts"]) == restarts, f"{line}, expected {restarts} restarts")
    for kind in KINDS:  # the log has rounded times
        expect(abs(seconds_of(parts[kind]) - seconds[kind]) <= (0.51 if seconds[kind] < 59 else 31), f"{kind}: {line}, {seconds}")


def check(run, said, restarts):
    lines = run.ledger()
    seconds = added_up(lines)
    check_line(said, seconds, restarts)
    expect(all(value >= -1e-3 for value in seconds.values()), f"{seconds}")
    span = lines[-1]["time_seconds"] - lines[0]["time_seconds"]
    expect(abs(sum(seconds.values()) - span) < 1e-3, f"{seconds} are not {span} s")
    # Compares with the lifetimes of all processes, and the time between them.
    there = run.there[-1][1] - run.there[0][0]
    expect(there - len(run.there) * run.slack < sum(seconds.values()) <= there, f"{seconds} of a run that was there for {there} s")


def check_each_start(run):
    """The lines of each start are within the lifetime of its process. A killed process lacks its last lines."""
    starts = []
    for line in run.ledger():
        if line["event"] == "start":
            starts.append([])
        starts[-1].append(line)
    for lines, (begin, end) in zip(starts, run.there):
        first, last = lines[0]["time_seconds"], lines[-1]["time_seconds"]
        expect(begin <= first < begin + run.slack and last <= end, f"{lines} of a process from {begin} to {end}")
        if len(lines) > 1 and lines[1]["event"] == "steps":
            steps = lines[1]
            listed = steps["step_seconds"] + steps["checkpoint_seconds"] + steps["evaluation_seconds"]
            measured = lines[0]["meet_seconds"] + lines[0]["load_seconds"]
            expect(0 < measured <= steps["time_seconds"] - listed - first + 1e-3, f"{lines[0]} begins its steps {listed} s before {steps}")
        if lines[-1]["event"] == "end":
            expect(last > end - run.slack, f"{lines} end before {end}")


def check_steps(run):
    """The times of the last start's steps in metrics.jsonl equal those of the ledger, which has another clock."""
    lines = run.ledger()
    begin = max(i for i, line in enumerate(lines) if line["event"] == "start")
    mine = [line for line in lines[begin:] if line["event"] == "steps"]
    steps = [m for m in metrics(run.run) if mine[0]["first"] <= m["step"] <= mine[-1]["last"]]
    for kind in "step", "evaluation":
        ledger, log = (sum(part[f"{kind}_seconds"] for part in parts) for parts in (mine, steps))
        # The ledger also has the time to write the line of the last step.
        expect(abs(ledger - log) < run.slack / 4 + 0.05 * ledger, f"{kind}: {ledger} s in the ledger, {log} s in metrics.jsonl")


def stopped_and_resumed(lockstep, folder):
    run = Run(lockstep, folder, "run")
    code, said = run.start("train.steps=1000000", stop=signal.SIGTERM, stop_when=lambda: run.steps() >= 150)
    expect(code == 75, f"stopped: exit {code}: {said[-1000:]}")
    check(run, said, 0)
    check_steps(run)
    lines = run.ledger()
    expect([line["event"] for line in lines][0] == "start" and lines[-1]["event"] == "end", f"{lines}")
    expect(lines[0]["step"] == 0 and lines[0]["ranks"] == 1 and len(lines[0]["hosts"]) == 1, f"{lines[0]}")
    expect(lines[-1]["exit_code"] == 75 and lines[-1]["why"] == says("ledger.signal"), f"{lines[-1]}")
    expect(sum(m["evaluation_seconds"] for m in metrics(run.run)) > 0, "no evaluation was timed")
    reached = run.steps()

    # The run resumes and verifies steps first, which counts as restart.
    code, said = run.start("train.steps=1000000", options=["--verify-resume", "5"], stop=signal.SIGINT,
                           stop_when=lambda: run.steps() > reached + 20)
    expect(code == 130, f"resumes: exit {code}: {said[-1000:]}")
    expect(re.search(pattern("train.computed_again"), said), f"verified nothing: {said[-1000:]}")
    expect(len(re.findall(pattern("goodput.line"), said)) == 2, f"says it at the start and at the end: {said[-1000:]}")
    check(run, said, 1)
    check_steps(run)
    reached = run.steps()

    # An error also ends a start: the directory of checkpoints is replaced, and the run cannot save.
    checkpoints = run.run / "checkpoints"

    def spoil():
        if run.steps() <= reached + 20:
            return False
        checkpoints.rename(folder / "away")
        checkpoints.touch()
        return True
    code, said = run.start("train.steps=1000000", "checkpoint.every_steps=1000000", stop=signal.SIGTERM,
                           stop_when=spoil)
    checkpoints.unlink()
    (folder / "away").rename(checkpoints)
    expect(code == 65, f"cannot save: exit {code}: {said[-1000:]}")
    end = run.ledger()[-1]
    expect(end["event"] == "end" and end["exit_code"] == code and "checkpoints" in end["why"], f"{end}, exit {code}")
    check(run, said, 2)

    # Steps after the last save are computed again.
    before = added_up(run.ledger())["replayed"]
    code, said = run.start(f"train.steps={reached + 5}")
    expect(code == 0, f"finishes: exit {code}: {said[-1000:]}")
    check(run, said, 3)
    expect(added_up(run.ledger())["replayed"] > before, "steps that were computed again are not replayed")
    check_each_start(run)

    # A complete run has no new start.
    count = len(run.ledger())
    code, said = run.start(f"train.steps={reached + 5}")
    expect(code == 0 and len(run.ledger()) == count and not re.search(pattern("goodput.line"), said), f"finished: {code}, {said[-1000:]}")


def killed(lockstep, folder):
    run = Run(lockstep, folder, "killed")

    def lines():
        path = run.run / "ledger.jsonl"
        return path.read_text().count('"steps"') if path.exists() else 0
    # The run is killed after its second line, before a save that would keep the steps.
    code, said = run.start("train.steps=1000000", "checkpoint.every_steps=1000000", stop=signal.SIGKILL,
                           stop_when=lambda: lines() >= 2)
    expect(code == -signal.SIGKILL, f"killed: exit {code}: {said[-1000:]}")
    expect(run.ledger()[-1]["event"] == "steps", f"{run.ledger()[-1]}")
    at = [line["time_seconds"] for line in run.ledger()]
    expect(len(at) == 3 and at[2] - at[1] >= 10, f"lines at {at}: one in ten seconds")
    code, said = run.start("train.steps=20")
    expect(code == 0, f"resumes: exit {code}: {said[-1000:]}")
    check(run, said, 1)
    check_each_start(run)
    seconds = added_up(run.ledger())
    expect(seconds["replayed"] > 10 and seconds["productive"] < seconds["replayed"], f"{seconds}")


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        pack(sys.argv[1], folder)
        stopped_and_resumed(sys.argv[1], folder)
        if sys.argv[2] == "full":
            killed(sys.argv[1], folder)
    finally:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
