#!/usr/bin/env python3
"""tools/sweep.py trains its trials as a job array of a real Slurm, and a task that is stopped is
requeued alone.

usage: sweep_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import hosts
import job
import slurm

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

SWEEP = pathlib.Path(__file__).parents[2] / "tools" / "sweep.py"
REQUEUED = says("slurm.requeued")
TRIALS = [f"learning_rate={rate}" for rate in ("1e-2", "1e-3", "1e-4")]


def sweep(tiny, name, steps):
    return hosts.sh(sys.executable, "-B", SWEEP, tiny.config, "--grid", "optimizer.learning_rate=1e-2,1e-3,1e-4",
                    "--out", tiny.folder / name, "--lockstep", tiny.lockstep,
                    "--slurm", "--nodes=1 --ntasks-per-node=1", "--", "--set", f"train.steps={steps}",
                    "--device", "cpu")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    slurm.check_installed()
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])
    cluster = slurm.Slurm(nodes)
    try:
        check_requeue(tiny, cluster)
        check_end(tiny)
    except RuntimeError:
        print(cluster.logs(), *(tiny.log(f"{name}/{trial}") for name in ("long", "short") for trial in TRIALS), sep="\n")
        raise
    return 1 if job.failures else 0


def check_requeue(tiny, cluster):
    number = re.search(pattern("sweep.submitted", trials=3, job=r"(\d+)"), sweep(tiny, "long", 1000000))[1]
    for trial in TRIALS:
        hosts.wait_for(lambda: len(tiny.numbers(f"long/{trial}")) >= 3, f"{trial} trains")
    job.expect(says("sweep.still_runs", job=number) in sweep(tiny, "long", 1000000), "a second array was submitted")
    job.expect(len(hosts.sh("squeue", "--noheader", "--array").splitlines()) == 3, "there are other tasks than three")
    # The last task has the number of the array as its own.
    hosts.sh("scancel", "--batch", "--signal=USR1", f"{number}_2")
    log = f"long/{TRIALS[2]}"
    hosts.wait_for(lambda: REQUEUED in tiny.log(log), "a requeue")
    hosts.wait_for(lambda: re.search(pattern("train.goes_on"), tiny.log(log)), "it resumes")
    for trial in TRIALS[:2]:
        job.expect(REQUEUED not in tiny.log(f"long/{trial}") and
                   tiny.log(f"long/{trial}").count("a start begins") == 1, f"{trial} was requeued too")
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number).split() in ([], ["CANCELLED"] * 3), "the array is cancelled")
    job.expect_nothing_runs("lockstep")


def check_end(tiny):
    sweep(tiny, "short", 6)
    hosts.wait_for(lambda: not subprocess.run(["squeue", "--noheader"], capture_output=True).stdout, "its end")
    table = sweep(tiny, "short", 6)
    job.expect([re.findall(rf"^{trial} +done +6 ", table, re.MULTILINE) != [] for trial in TRIALS] == [True] * 3,
               f"not all trials are done: {table}")
    job.expect((tiny.folder / "short" / "report.html").exists(), "there is no page")


if __name__ == "__main__":
    sys.exit(main())
