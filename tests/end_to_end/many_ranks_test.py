#!/usr/bin/env python3
"""64 ranks of a tiny model start on one host within ten seconds, and train as one rank does.

usage: many_ranks_test.py LOCKSTEP

The start ends when the first step begins: at the line with the weights that a run starts from.
Exit 77 (skipped) without mpirun.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from mpirun_test import ENVIRONMENT, Job, close, expect, failures
from tiny_run import configuration, numbers, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

RANKS = 64
DEADLINE_SECONDS = 10
STEPS = 2


def main():
    lockstep = sys.argv[1]
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        check(lockstep, folder)
    finally:
        shutil.rmtree(folder)
    return 1 if failures else 0


def check(lockstep, folder):
    pack(lockstep, folder)
    config = configuration(folder, "llama3")
    job = Job(lockstep, folder)
    settings = ["train.batch_tokens=2048", "train.micro_batch=1", f"train.steps={STEPS}",
                "eval.every_steps=0"]
    code, said = job.run(config, folder / "one", 1, *settings)
    expect(code == 0, f"one rank ends with {code}: {said[-500:]}")

    begin = time.monotonic()
    started, lines = None, []
    with subprocess.Popen(job.command(config, folder / "many", RANKS, settings), env=ENVIRONMENT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            seconds = time.monotonic() - begin
            lines.append(f"{seconds:6.2f} {line}")
            if started is None and says("train.random_weights") in line:
                started = seconds
    said = "".join(lines)
    expect(process.returncode == 0, f"{RANKS} ranks end with {process.returncode}: {said[-2000:]}")
    expect(started is not None and started < DEADLINE_SECONDS,
           f"{RANKS} ranks took {started} s to their first step: {said}")
    one, many = numbers(folder / "one"), numbers(folder / "many")
    expect(len(many) == STEPS and all(close(m[1], o[1]) and close(m[2], o[2])
                                      for m, o in zip(many, one)), f"{many} is not {one}")
    print(said)


if __name__ == "__main__":
    sys.exit(main())
