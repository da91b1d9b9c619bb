#!/usr/bin/env python3
"""Operations of docs/operations.md in jobs of a real Slurm that are requeued: the command goes back once, its
skipped steps stay skipped, and a phase begins without another start.

usage: operations_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import pathlib
import shutil
import signal
import sys

import hosts
import job
import slurm

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

SKIP = ("--skip-steps", "25..30")
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4")
SAVES = ("checkpoint.every_steps=20", "checkpoint.keep_last=1000000")


def stop(cluster, number):
    """Cancels a job and waits for its end."""
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) in ("", "CANCELLED"), f"job {number} ends")
    job.expect_nothing_runs("lockstep")


def check_rollback(tiny, cluster):
    number = cluster.submit(tiny, "back", *SAVES)
    hosts.wait_for(lambda: 40 in tiny.checkpoints("back"), "step 40 is saved")
    stop(cluster, number)
    before = tiny.numbers("back")
    number = cluster.submit(tiny, "back", *SAVES, flags=("--from-step", "20", *SKIP))
    hosts.wait_for(lambda: says("train.went_back", step=20) in tiny.log("back"), "it goes back")
    tiny.wait_for_steps("back", 50)
    hosts.sh("scancel", "--batch", "--signal=USR1", number)
    hosts.wait_for(lambda: says("slurm.requeued") in tiny.log("back"), "a requeue")
    steps = len(tiny.numbers("back"))
    tiny.wait_for_steps("back", steps + 10)
    stop(cluster, number)
    run = tiny.folder / "back"
    job.expect(tiny.log("back").count(says("train.went_back", step=20)) == 1 and
               (run / "metrics.before-1.jsonl").exists() and not (run / "metrics.before-2.jsonl").exists(),
               f"the requeued command does not go back exactly once: {tiny.log('back')}")
    job.expect((run / "checkpoints/step-00000040.replaced-1").exists(), "the abandoned checkpoint is gone")
    # One host that skips the same steps and never goes back.
    after = tiny.numbers("back")
    process = tiny.start(MPIRUN, "forward", *SAVES, flags=SKIP)
    tiny.wait_for_steps("forward", len(after), process)
    process.send_signal(signal.SIGUSR1)
    process.wait(timeout=hosts.PATIENCE)
    job.expect(after == tiny.numbers("forward")[:len(after)], f"not the bits of one host:\n{after}")
    job.expect(after[:24] == before[:24] and after[24:40] != before[24:40], "no step was skipped")


def check_phases(tiny, cluster):
    with open(tiny.config, "a", encoding="utf-8") as file:
        file.write("[[phase]]\nfrom_step = 15\ntrain.sequence_length = 64\n")
    number = cluster.submit(tiny, "phases", "train.steps=40")
    hosts.wait_for(lambda: "JobState=COMPLETED" in hosts.sh("scontrol", "show", "job", number), "both phases are done")
    log = tiny.log("phases")
    job.expect("Restarts=0 " in hosts.sh("scontrol", "show", "job", number) and
               says("train.phase_ends", step=15) in log and len(tiny.numbers("phases")) == 40,
               f"expected one start and 40 steps: {log}")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    slurm.check_installed()
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])
    cluster = slurm.Slurm(nodes)
    try:
        check_rollback(tiny, cluster)
        check_phases(tiny, cluster)
    except RuntimeError:
        print(cluster.logs(), *(path.read_text(errors="replace")[-2000:]
                                for path in tiny.folder.glob("*.log")), sep="\n")
        raise
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
