#!/usr/bin/env python3
"""Job arrays of launch/cluster/train.sbatch on a real Slurm: tasks that train one run in turn, and
tasks with a run each, of which one requeues itself.

usage: arrays_test.py LOCKSTEP

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

STEPS = 600  # of the chain: more than its first task makes until it is stopped


def task(array, number):
    """What `scontrol show job` reports of it."""
    return hosts.sh("scontrol", "show", "job", f"{array}_{number}").strip()


def stop(array, number):
    """As --signal does before the time limit. scancel may report an error after it sent the signal: it
    calls a job that has just started transitional, and tries again after the job has ended."""
    subprocess.run(["scancel", "--batch", "--signal=USR1", f"{array}_{number}"], stderr=subprocess.DEVNULL)


def check_chain(tiny, cluster):
    """One run; a task that stops at its time limit leaves the rest to the next one."""
    array = cluster.submit(tiny, "chain", f"train.steps={STEPS}", "checkpoint.every_steps=0",
                           launcher=("sbatch", "--nodes=1", "--ntasks-per-node=2", "--array=1-3%1",
                                     "--no-requeue"))
    tiny.wait_for_steps("chain", 50)
    stop(array, 1)
    hosts.wait_for(lambda: all("JobState=COMPLETED" in task(array, number) for number in (2, 3)),
                   "tasks 2 and 3 are done")
    log = tiny.log("chain")
    job.expect("JobState=FAILED" in task(array, 1) and says("slurm.not_requeued") in log,
               f"the first task: {task(array, 1)} {log}")
    job.expect(len(tiny.numbers("chain")) == STEPS, f"the run has {len(tiny.numbers('chain'))} steps")
    job.expect(len(re.findall(pattern("train.goes_on"), log)) >= 1 and
               len(re.findall(pattern("slurm.begins", job=f"{array}_[123]"), log)) == 3, f"the starts: {log}")


def check_sweep(tiny, cluster):
    """A run for each task. The last one has the number of the array, and requeues itself alone."""
    array = cluster.submit(tiny, "seed-%a", "train.seed=%a",
                           launcher=("sbatch", "--nodes=1", "--ntasks-per-node=2", "--array=1-2"))
    for number in (1, 2):
        tiny.wait_for_steps(f"seed-{number}", 4)
    last = next(number for number in (1, 2) if task(array, number).startswith(f"JobId={array} "))
    stop(array, last)
    hosts.wait_for(lambda: re.search(pattern("train.goes_on"), tiny.log(f"seed-{last}")), "it goes on")
    for number in (1, 2):
        job.expect(f"Restarts={int(number == last)} " in task(array, number),
                   f"task {number} of {array}, after task {last} was stopped: {task(array, number)}")
    job.expect(tiny.numbers("seed-1")[0] != tiny.numbers("seed-2")[0], "both runs have the same seed")
    hosts.sh("scancel", array)
    hosts.wait_for(lambda: not job.processes("lockstep"), "all ranks have ended")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    slurm.check_installed()
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])
    cluster = slurm.Slurm(nodes)
    try:
        check_sweep(tiny, cluster)
        check_chain(tiny, cluster)
    except RuntimeError:
        print(cluster.logs(), *(path.read_text(errors="replace")[-2000:]
                                for path in tiny.folder.glob("*.log")), sep="\n")
        raise
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
