#!/usr/bin/env python3
"""launch/cluster/train.sbatch trains on two nodes of a real Slurm; it is stopped as before its time
limit, requeued, goes on, and is cancelled. After the death of a rank it goes on too, if it has saved.

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
        check(tiny, cluster, nodes)
    except RuntimeError:
        print(cluster.logs(), tiny.log("batch"), sep="\n")
        raise
    return 1 if job.failures else 0


def check(tiny, cluster, nodes):
    code, said = tiny.run(["srun", "--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2"], "refused")
    job.expect(code == 78 and "srun --mpi=pmix" in said,
               f"srun --mpi=pmi2: {code} {said}")
    check_without_mpi(tiny)
    check_options(tiny, cluster)
    check_stop(tiny, cluster)
    check_death(tiny, cluster, nodes)
    check_removed(tiny, cluster)
    check_storage(tiny, cluster)


def check_without_mpi(tiny):
    """Ranks that plain srun starts meet at the first node of the step."""
    os.environ["LOCKSTEP_SECRET"] = "ab" * 32
    code, said = tiny.run(["srun", "--nodes=2", "--ntasks-per-node=2", "--mpi=none"], "without_mpi", "train.steps=4",
                          "schedule.kind=constant")
    del os.environ["LOCKSTEP_SECRET"]
    job.expect(code == 0 and says("launch.by_sockets") in said and len(tiny.numbers("without_mpi")) == 4,
               f"srun --mpi=none: {code} {said}")


def check_options(tiny, cluster):
    """Options of srun by the environment follow those of the script, and replace --mpi=pmix."""
    os.environ["LOCKSTEP_SRUN_ARGS"] = "--mpi=pmi2 --label"
    number = cluster.submit(tiny, "options")
    del os.environ["LOCKSTEP_SRUN_ARGS"]
    hosts.wait_for(lambda: cluster.state(number) == "FAILED", "the job has failed")
    job.expect(re.search(r"^0: .*srun --mpi=pmix", tiny.log("options"), re.MULTILINE) and
               says("slurm.no_retry", code=78) in tiny.log("options"), f"options of srun: {tiny.log('options')}")


def check_stop(tiny, cluster):
    number = cluster.submit(tiny, "batch")
    tiny.wait_for_steps("batch", 4)
    started = says("launch.started", launcher="srun", rank=0, ranks=4)
    job.expect(f"{started} {says('launch.with_pmix')}; {says('launch.by_mpi')}" in tiny.log("batch"),
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


def check_death(tiny, cluster, nodes):
    number = cluster.submit(tiny, "died", "checkpoint.every_steps=3",
                            "checkpoint.local_directory=/dev/shm/lockstep")
    hosts.wait_for(lambda: tiny.checkpoints("died"), "a checkpoint")
    # As where nothing is copied to the run's folder yet.
    shutil.rmtree(tiny.folder / "died" / "checkpoints", ignore_errors=True)
    for node in nodes:
        hosts.sh(*node.on("sh", "-c", "rm -f /dev/shm/lockstep/died-*/step-*/copied"))
    with open(tiny.folder / "died.log", "a") as log:  # as a run of hours writes
        log.write("a line of a long log\n" * 20_000)
    os.kill(job.ranks()[3], signal.SIGKILL)
    hosts.wait_for(lambda: REQUEUED in tiny.log("died"), "a requeue")
    before = len(tiny.numbers("died"))
    hosts.wait_for(lambda: re.search(pattern("train.goes_on"), tiny.log("died")), "it goes on")
    tiny.wait_for_steps("died", before + 4)
    cancel(tiny, cluster, "died", number)
    tiny.expect_the_bits_of_one_host("died")

    # After three starts in a row that saved nothing it would die again.
    number = cluster.submit(tiny, "unsaved", "checkpoint.every_steps=0")
    for start in (1, 2, 3):
        hosts.wait_for(lambda: tiny.log("unsaved").count(says("train.random_weights")) == start and
                       tiny.numbers("unsaved"), f"start {start} makes steps")
        os.kill(job.ranks()[start % 4], signal.SIGKILL)
        hosts.wait_for(lambda: len(re.findall(pattern("slurm.start_ended"), tiny.log("unsaved"))) == start, "its end")
    hosts.wait_for(lambda: cluster.state(number) == "FAILED", "the job has failed")
    job.expect(says("slurm.unsaved", starts=3) in tiny.log("unsaved"),
               f"no word of the end: {tiny.log('unsaved')}")
    job.expect_nothing_runs("lockstep")


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


def check_storage(tiny, cluster):
    """A limit of file sizes that a checkpoint exceeds: the next start is later."""
    number = cluster.submit(tiny, "limited", "train.steps=3", "checkpoint.every_steps=0",
                            limit_kilobytes=16)
    hosts.wait_for(lambda: re.search(pattern("slurm.next_start"), tiny.log("limited")), "a retry later")
    job.expect(says("slurm.start_ended", code=74) in tiny.log("limited") and
               says("slurm.next_start", minutes=10) in tiny.log("limited"),
               f"what it ended with: {tiny.log('limited')}")
    hosts.wait_for(lambda: cluster.state(number) == "PENDING", "it waits")
    hosts.wait_for(lambda: hosts.sh("squeue", "--noheader", "--start", f"--jobs={number}",
                                    "--format=%r").strip() == "BeginTime", "it waits for its time")
    hosts.sh("scancel", number)


def cancel(tiny, cluster, run, number):
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect(says("slurm.ended") in tiny.log(run) and tiny.log(run).count(REQUEUED) == 1,
               f"a cancelled job is not requeued: {tiny.log(run)}")
    job.expect_nothing_runs("lockstep")


if __name__ == "__main__":
    sys.exit(main())
