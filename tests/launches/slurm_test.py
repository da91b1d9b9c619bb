#!/usr/bin/env python3
"""launch/cluster/train.sbatch trains on two nodes of a real Slurm; it is stopped as before its time
limit, requeued, goes on, and is cancelled. After the death of a rank it goes on within the job.

usage: slurm_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import os
import pathlib
import re
import shutil
import signal
import sys

import hosts
import job
import slurm

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

REQUEUED = says("slurm.requeued")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    slurm.check_installed()
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])
    cluster = slurm.Slurm(nodes)
    try:
        check(tiny, cluster)
    except RuntimeError:
        print(cluster.logs(), tiny.log("batch"), sep="\n")
        raise
    return 1 if job.failures else 0


def check(tiny, cluster):
    code, said = tiny.run(["srun", "--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2"], "refused")
    job.expect(code == 78 and "srun --mpi=pmix" in said,
               f"srun --mpi=pmi2: {code} {said}")
    check_without_mpi(tiny)
    check_options(tiny, cluster)
    check_stop(tiny, cluster)
    check_death(tiny, cluster)
    check_removed(tiny, cluster)


def check_without_mpi(tiny):
    """Ranks that plain srun starts meet at the first node of the step."""
    os.environ["LOCKSTEP_SECRET"] = "ab" * 32
    code, said = tiny.run(["srun", "--nodes=2", "--ntasks-per-node=2", "--mpi=none"], "without_mpi", "train.steps=4",
                          "schedule.kind=constant")
    del os.environ["LOCKSTEP_SECRET"]
    job.expect(code == 0 and says("launch.by_sockets") in said and len(tiny.numbers("without_mpi")) == 4,
               f"srun --mpi=none: {code} {said}")


def check_options(tiny, cluster):
    """Options of srun by the environment follow those of the script."""
    os.environ["LOCKSTEP_SRUN_ARGS"] = "--label"
    number = cluster.submit(tiny, "options", "train.steps=4", "schedule.kind=constant")
    del os.environ["LOCKSTEP_SRUN_ARGS"]
    hosts.wait_for(lambda: cluster.state(number) == "COMPLETED", "the job is complete")
    job.expect(re.search(r"^\d: step +4/4", tiny.log("options"), re.MULTILINE), f"options of srun: {tiny.log('options')}")


def check_stop(tiny, cluster):
    number = cluster.submit(tiny, "batch")
    tiny.wait_for_steps("batch", 4)
    job.expect(says("launch.started", launcher="lockstep supervise", rank=0, ranks=4) in tiny.log("batch"),
               f"who started it: {tiny.log('batch')}")
    job.expect(says("launch.on_hosts", ranks=4, hosts=2) in tiny.log("batch"), f"where it runs: {tiny.log('batch')}")
    hosts.sh("scancel", "--batch", "--signal=USR1", number)  # what --signal=B:USR1 does at its time
    hosts.wait_for(lambda: REQUEUED in tiny.log("batch"), "a requeue")
    stopped = len(tiny.numbers("batch"))
    tiny.wait_for_steps("batch", stopped + 4)
    job.expect(says("train.goes_on", step=stopped) in tiny.log("batch"),
               f"it does not go on: {tiny.log('batch')}")
    cancel(tiny, cluster, "batch", number)
    job.expect(len(re.findall(pattern("train.stopped"), tiny.log("batch"))) == 2,
               f"a cancelled run saves: {tiny.log('batch')}")
    tiny.expect_the_bits_of_one_host("batch")


def check_death(tiny, cluster):
    """The agents restart the ranks within the job."""
    number = cluster.submit(tiny, "died", "checkpoint.every_steps=3")
    hosts.wait_for(lambda: tiny.checkpoints("died"), "a checkpoint")
    os.kill(job.supervised_ranks()["n2"][0], signal.SIGKILL)
    hosts.wait_for(lambda: re.search(pattern("train.goes_on"), tiny.log("died")), "it goes on")
    tiny.wait_for_steps("died", len(tiny.numbers("died")) + 4)
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect(REQUEUED not in tiny.log("died"), f"requeued: {tiny.log('died')}")
    job.expect_nothing_runs("lockstep")
    tiny.expect_the_bits_of_one_host("died")


def check_removed(tiny, cluster):
    """A run whose folder goes is never started again, at step 0."""
    number = cluster.submit(tiny, "removed", "checkpoint.every_steps=3")
    hosts.wait_for(lambda: tiny.checkpoints("removed"), "a checkpoint")
    (tiny.folder / "removed").rename(tiny.folder / "elsewhere")
    hosts.wait_for(lambda: cluster.state(number) == "FAILED", "the job has failed")
    job.expect(says("train.run_gone") in tiny.log("removed") and
               says("slurm.no_retry", code=65) in tiny.log("removed"),
               f"no word of the end: {tiny.log('removed')}")
    job.expect(not (tiny.folder / "removed").exists(), "the run's folder was made again")
    job.expect_nothing_runs("lockstep")


def cancel(tiny, cluster, run, number):
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect(says("slurm.ended") in tiny.log(run) and tiny.log(run).count(REQUEUED) == 1,
               f"a cancelled job is not requeued: {tiny.log(run)}")
    job.expect_nothing_runs("lockstep")


if __name__ == "__main__":
    sys.exit(main())
