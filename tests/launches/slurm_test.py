#!/usr/bin/env python3
"""launch/cluster/train.sbatch trains on two nodes of a real Slurm; it is stopped as before its time
limit, requeued, goes on, and is cancelled. After the death of a rank it goes on too, if it has saved.

usage: slurm_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import os
import shutil
import signal
import sys

import hosts
import job
import slurm


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
    job.expect(code == 78 and "start with mpirun -n RANKS or srun --mpi=pmix" in said,
               f"srun --mpi=pmi2: {code} {said}")
    check_stop(tiny, cluster)
    check_death(tiny, cluster, nodes)
    check_removed(tiny, cluster)
    check_storage(tiny, cluster)


def check_stop(tiny, cluster):
    number = cluster.submit(tiny, "batch")
    tiny.wait_for_steps("batch", 4)
    job.expect("srun started rank 0 of 4 with PMIx; they talk by MPI" in tiny.log("batch"),
               f"who started it: {tiny.log('batch')}")
    job.expect("4 ranks on 2 hosts" in tiny.log("batch"), f"where it runs: {tiny.log('batch')}")
    hosts.sh("scancel", "--batch", "--signal=USR1", number)  # what --signal=B:USR1 does at its time
    hosts.wait_for(lambda: ": requeued" in tiny.log("batch"), "a requeue")
    stopped = len(tiny.numbers("batch"))
    tiny.wait_for_steps("batch", stopped + 4)
    job.expect(f"going on from step {stopped}" in tiny.log("batch"),
               f"it does not go on: {tiny.log('batch')}")
    cancel(tiny, cluster, "batch", number)
    job.expect(tiny.log("batch").count("stopped by a signal after step") == 2,
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
    hosts.wait_for(lambda: ": requeued" in tiny.log("died"), "a requeue")
    before = len(tiny.numbers("died"))
    hosts.wait_for(lambda: "going on from step" in tiny.log("died"), "it goes on")
    tiny.wait_for_steps("died", before + 4)
    cancel(tiny, cluster, "died", number)
    tiny.expect_the_bits_of_one_host("died")

    # After three starts in a row that saved nothing it would die again.
    number = cluster.submit(tiny, "unsaved", "checkpoint.every_steps=0")
    for start in (1, 2, 3):
        hosts.wait_for(lambda: tiny.log("unsaved").count("starting from random weights") == start and
                       tiny.numbers("unsaved"), f"start {start} makes steps")
        os.kill(job.ranks()[start % 4], signal.SIGKILL)
        hosts.wait_for(lambda: tiny.log("unsaved").count("a start ended with") == start, "its end")
    hosts.wait_for(lambda: cluster.state(number) == "FAILED", "the job has failed")
    job.expect("3 starts in a row saved nothing. Not requeued" in tiny.log("unsaved"),
               f"no word of the end: {tiny.log('unsaved')}")
    job.expect_nothing_runs("lockstep")


def check_removed(tiny, cluster):
    """A run whose folder goes is never started again, at step 0."""
    number = cluster.submit(tiny, "removed", "checkpoint.every_steps=3")
    hosts.wait_for(lambda: tiny.checkpoints("removed"), "a checkpoint")
    (tiny.folder / "removed").rename(tiny.folder / "elsewhere")
    hosts.wait_for(lambda: cluster.state(number) == "FAILED", "the job has failed")
    job.expect("the run directory was removed, moved or replaced" in tiny.log("removed") and
               "exit code 65: a retry cannot help. Not requeued" in tiny.log("removed"),
               f"no word of the end: {tiny.log('removed')}")
    job.expect(not (tiny.folder / "removed").exists(), "the run's folder was made again")
    job.expect_nothing_runs("lockstep")


def check_storage(tiny, cluster):
    """A limit of file sizes that a checkpoint exceeds: the next start is later."""
    number = cluster.submit(tiny, "limited", "train.steps=3", "checkpoint.every_steps=0",
                            limit_kilobytes=16)
    hosts.wait_for(lambda: "the next start is in" in tiny.log("limited"), "a retry later")
    job.expect("a start ended with 74" in tiny.log("limited") and
               "the next start is in 10 minutes" in tiny.log("limited"),
               f"what it ended with: {tiny.log('limited')}")
    hosts.wait_for(lambda: cluster.state(number) == "PENDING", "it waits")
    begin = hosts.sh("squeue", "--noheader", "--start", f"--jobs={number}", "--format=%S %r").strip()
    job.expect(begin.endswith("BeginTime"), f"it does not wait: {begin}")
    hosts.sh("scancel", number)


def cancel(tiny, cluster, run, number):
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect("ended by Slurm, which" in tiny.log(run) and tiny.log(run).count(": requeued") == 1,
               f"a cancelled job is not requeued: {tiny.log(run)}")
    job.expect_nothing_runs("lockstep")


if __name__ == "__main__":
    sys.exit(main())
