#!/usr/bin/env python3
"""`lockstep ctl` commands a run of several ranks: under mpirun, and at an address without MPI. A pause outlasts
train.stall_seconds, and the run has the bits of one that was started with its history.

usage: ctl_ranks_test.py LOCKSTEP mpi|address

Exit 77 (skipped) without mpirun.
"""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from address_test import ENVIRONMENT, RANKS, expect, failures, start
from tiny_run import configuration, metrics, numbers, pack

STALL_SECONDS = 3


def train(lockstep, config, run, *flags):
    return [lockstep, "train", str(config), "--run", str(run), "--device", "cpu", *flags]


def launch(command, under_mpi):
    """Starts the ranks. Returns their processes, rank 0 first: all write to their standard output."""
    if not under_mpi:
        return start(command)
    return [subprocess.Popen(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), *command],
                             env=ENVIRONMENT, start_new_session=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace")]


def end(ranks):
    """Waits for them. Returns the text of the first."""
    return [rank.communicate(timeout=120)[0] for rank in ranks][0]


def ctl(lockstep, run, *words):
    done = subprocess.run([lockstep, "ctl", str(run), *words], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"ctl {words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def wait_for_steps(run, count, ranks):
    deadline = time.time() + 120
    while len(metrics(run)) < count and time.time() < deadline and ranks[0].poll() is None:
        time.sleep(0.05)
    expect(len(metrics(run)) >= count, f"{run.name}: no step {count}")


def check(lockstep, folder, config, name, under_mpi):
    run = folder / name
    ranks = launch(train(lockstep, config, run), under_mpi)
    wait_for_steps(run, 3, ranks)
    ctl(lockstep, run, "pause")
    steps = len(metrics(run))
    time.sleep(2 * STALL_SECONDS + 1)
    expect(len(metrics(run)) == steps and ranks[0].poll() is None, f"{name}: it did not wait")
    expect("paused          yes" in ctl(lockstep, run, "status"), f"{name}: status does not say that it is paused")
    saved = int(ctl(lockstep, run, "save").split("saved step ")[1].split(";")[0])
    expect(saved == steps, f"{name}: a pause after step {steps} saves step {saved}")
    ctl(lockstep, run, "resume")
    ctl(lockstep, run, "set", "optimizer.learning_rate=5e-4", "optimizer.weight_decay=0.3")
    wait_for_steps(run, saved + 20, ranks)
    ctl(lockstep, run, "rollback", str(saved), "--skip", f"{saved + 2}..{saved + 4}", "--yes")
    at = [one["at_step"] for one in json.loads((run / "amendments.json").read_text())["amendments"]
          if "settings" in one][0]
    wait_for_steps(run, at + 5, ranks)
    ctl(lockstep, run, "stop")
    said = end(ranks)
    live = numbers(run)
    expect("stopped by a request" in said, f"{name}: {said[-1500:]}")
    # The same history, known before the first step.
    phases = config.with_name(f"{name}.toml")
    phases.write_text(config.read_text() + f"[[phase]]\nfrom_step = {at}\noptimizer.learning_rate = 5e-4\n"
                      "optimizer.weight_decay = 0.3\n")
    whole = folder / f"{name}_whole"
    ranks = launch(train(lockstep, phases, whole, "--skip-steps", f"{saved + 2}..{saved + 4}"), under_mpi)
    wait_for_steps(whole, len(live), ranks)
    for rank in ranks:
        rank.send_signal(signal.SIGUSR1)
    said = end(ranks)
    expect(numbers(whole)[:len(live)] == live, f"{name}: not the bits of a run with that history: {said[-1500:]}\n"
           f"{[(a, b) for a, b in zip(live, numbers(whole)) if a != b][:3]}")


def main():
    lockstep = sys.argv[1]
    if sys.argv[2] == "mpi" and shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        pack(lockstep, folder)
        config = configuration(folder, "llama3")
        text = config.read_text().replace("steps = 6", f"steps = 1000000\nstall_seconds = {STALL_SECONDS}")
        text = text.replace("every_steps = 3", "every_steps = 0").replace("[log]", "[log]\nevery_steps = 1000")
        config.write_text(text + "[checkpoint]\nevery_steps = 0\n[layout]\ntensor = 2\n[schedule]\n"
                          "kind = 'constant'\nwarmup_steps = 10\n")
        check(lockstep, folder, config, sys.argv[2], under_mpi=sys.argv[2] == "mpi")
    finally:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
