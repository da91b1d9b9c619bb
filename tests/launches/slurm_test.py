#!/usr/bin/env python3
"""launch/cluster/train.sbatch trains on two nodes of a real Slurm; it is stopped as before its time
limit, requeued, goes on, and is cancelled.

usage: slurm_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import shutil
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
        check(tiny, cluster)
    except RuntimeError:
        print(cluster.logs(), tiny.log("batch"), sep="\n")
        raise
    return 1 if job.failures else 0


def check(tiny, cluster):
    tasks = ["--nodes=2", "--ntasks-per-node=2"]

    code, said = tiny.run(["srun", *tasks, "--mpi=pmi2"], "refused")
    job.expect(code == 78 and "start with mpirun -n RANKS or srun --mpi=pmix" in said,
               f"srun --mpi=pmi2: {code} {said}")

    number = hosts.sh("sbatch", "--parsable", *tasks, f"--output={tiny.folder}/batch.log",
                      job.EXAMPLES / "train.sbatch", *tiny.train("batch")).strip()
    tiny.wait_for_steps("batch", 4)
    job.expect("srun started rank 0 of 4 with PMIx; they talk by MPI" in tiny.log("batch"),
               f"who started it: {tiny.log('batch')}")
    job.expect("4 ranks on 2 hosts" in tiny.log("batch"), f"where it runs: {tiny.log('batch')}")
    hosts.sh("scancel", "--batch", "--signal=USR1", number)  # what --signal=B:USR1 does at its time
    hosts.wait_for(lambda: "requeued" in tiny.log("batch"), "a requeue")
    stopped = len(tiny.numbers("batch"))
    tiny.wait_for_steps("batch", stopped + 4)
    job.expect(f"going on from step {stopped}" in tiny.log("batch"),
               f"it does not go on: {tiny.log('batch')}")
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect(tiny.log("batch").count("stopped by a signal after step") == 2,
               f"a cancelled run saves: {tiny.log('batch')}")
    job.expect(tiny.log("batch").count("requeued") == 1,
               f"a cancelled job is not requeued: {tiny.log('batch')}")
    job.expect_nothing_runs("lockstep")
    tiny.expect_the_bits_of_one_host("batch")


if __name__ == "__main__":
    sys.exit(main())
