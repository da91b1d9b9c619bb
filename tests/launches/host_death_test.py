#!/usr/bin/env python3
"""A host dies while it trains, and with it all that runs on it. Under launch/cluster/mpirun.sh the same
command resumes with the remaining hosts, with another in its place or without; under a real Slurm
the job of launch/cluster/train.sbatch does so by itself. Says how many seconds each part took.

usage: host_death_test.py LOCKSTEP mpirun|slurm ci|full

Exit 77 (skipped) without root, namespaces, mpirun or Slurm.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import hosts
import job
import slurm

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

SETTINGS = ["checkpoint.every_steps=3"]
# Twice the limits of docs/resilience.md, because these hosts share the CPU cores with other tests.
SPARE_LIMIT, REQUEUE_LIMIT = 20, 120
SHARE = max(1, len(os.sched_getaffinity(0)) // 2)
EACH = says("launch.one_processor") if SHARE == 1 else says("launch.processors", count=SHARE)  # of two ranks of a host


def silent_rank(rank, host):
    return pattern("end.rank", rank=rank, host=host.name, pid=r"\d+")


def placed(first, other):
    """Two ranks on each of two hosts."""
    hosts_of_ranks = [says("launch.host", host=host, ranks=ranks) for host, ranks in ((first, "0-1"), (other, "2-3"))]
    return f"{hosts_of_ranks[0]}, {says('launch.alike', processors=EACH)} {hosts_of_ranks[1]}"


def changed(before, after):
    return says("train.changed", key="layout.shard", before=before, after=after)


class Death:
    """Of a host, in this moment."""

    def __init__(self, tiny, run, host):
        self.tiny, self.run, self.host = tiny, run, host
        self.ended = tiny.folder / run / "ended"
        for file in self.ended.glob("*"):
            file.unlink()
        self.begin, self.said_before, self.parts = time.monotonic(), len(tiny.log(run)), []
        host.kill()

    def wait_for(self, what, happened):
        hosts.wait_for(happened, f"{self.run}: {what}")
        self.parts.append(f"{what} {time.monotonic() - self.begin:.1f} s")

    def wait_for_the_ranks(self, silent):
        """They end by themselves, and name those that are silent."""
        self.wait_for("noticed", lambda: any(self.ended.glob("*")))
        self.wait_for("ranks ended", lambda: not job.processes("lockstep"))
        for file in self.ended.iterdir():
            left = file.read_text()
            expected = f"{silent_rank(silent, self.host)} {pattern('end.silent')}"
            job.expect(re.match(expected, left), f"{file} after {expected}: {left[:300]}")

    def wait_for_a_step(self, limit=None):
        start = f"{pattern('train.goes_on')}|{says('train.random_weights')}"
        step = re.compile(f"({start}).*^{pattern('step.of')}", re.DOTALL | re.MULTILINE)
        self.wait_for("first new step",
                      lambda: step.search(self.tiny.log(self.run)[self.said_before:]))
        print(f"{self.run}, {self.host.name} died: {', '.join(self.parts)}", flush=True)
        seconds = time.monotonic() - self.begin
        job.expect(limit is None or seconds < limit, f"{self.run}: {seconds:.1f} s, more than {limit} s")


def wait_for_a_save(tiny, run, before, has_ended=lambda: False):
    hosts.wait_for(lambda: tiny.checkpoints(run) != before or has_ended(), f"{run} is saved")
    if has_ended():
        raise RuntimeError(f"{run} ended")


def expect_said(tiny, run, *lines):
    for line in lines:
        job.expect(line in tiny.log(run), f"{run}: no '{line}' in {tiny.log(run)[-4000:]}")


# mpirun

def start(tiny, run, hostfile, settings):
    tiny.hostfile.write_text(hostfile)
    return tiny.start([job.EXAMPLES / "mpirun.sh", tiny.hostfile], run, *settings)


def survive_under_mpirun(tiny, run, host, silent, before, after):
    """Killed in a run on the hosts `before`, which goes on, and is stopped, on those `after`."""
    saved = tiny.checkpoints(run)
    process = start(tiny, run, before, SETTINGS)
    wait_for_a_save(tiny, run, saved, lambda: process.poll() is not None)
    death = Death(tiny, run, host)
    death.wait_for_the_ranks(silent)
    death.wait_for("mpirun.sh ended", lambda: process.poll() is not None)
    job.expect(process.returncode == 75, f"{run}: mpirun.sh ended with {process.returncode}")
    job.expect(re.search(f"{pattern('end.why')} {silent_rank(silent, host)}", tiny.log(run)),
               f"{run}: {host.name} is not named: {tiny.log(run)[-4000:]}")
    left = ("orted", "orterun", "cat")  # cat: what is left of the agent that called the dead host
    hosts.wait_for(lambda: not any(map(job.processes, left)), f"{run}: none of {left} runs")
    process = start(tiny, run, after, SETTINGS)
    death.wait_for_a_step()
    process.send_signal(signal.SIGUSR1)
    code = process.wait(timeout=hosts.PATIENCE)
    job.expect(code == 75, f"{run}: stopped with {code}: {tiny.log(run)[-2000:]}")


def check_mpirun_ci(tiny):
    nodes = [hosts.Host(number) for number in (1, 2, 3)]
    survive_under_mpirun(tiny, "another", nodes[1], "[23]", before="n1 slots=2\nn2 slots=2\n",
                         after="n1 slots=2\nn3 slots=2\n")
    expect_said(tiny, "another", placed("n1", "n3"))
    tiny.expect_the_bits_of_one_host("another")

    tiny.hostfile.write_text("n1 slots=2\n")
    tiny.run_steps([job.EXAMPLES / "mpirun.sh", tiny.hostfile], "another", 4, signal.SIGUSR1)
    expect_said(tiny, "another", says("launch.on_one_host", ranks=2), changed(2, 1))
    tiny.expect_the_losses_of_one_host("another", len(tiny.numbers("another")))


def check_mpirun_full(tiny):
    """The first rank's host; another in its place, none, then the one that boots again."""
    nodes = [hosts.Host(number) for number in (1, 2, 3)]
    survive_under_mpirun(tiny, "first", nodes[0], "0", before="n1 slots=2\nn2 slots=2\n",
                         after="n3 slots=2\nn2 slots=2\n")
    tiny.expect_the_bits_of_one_host("first")
    survive_under_mpirun(tiny, "first", nodes[2], "0", before="n3 slots=2\nn2 slots=2\n",
                         after="n2 slots=2\n")
    hosts.Host(1)
    tiny.hostfile.write_text("n1 slots=2\nn2 slots=2\n")
    tiny.run_steps([job.EXAMPLES / "mpirun.sh", tiny.hostfile], "first", 4, signal.SIGUSR1)
    expect_said(tiny, "first", changed(2, 1), changed(1, 2))
    tiny.expect_the_losses_of_one_host("first", len(tiny.numbers("first")))
    check_memory(tiny)


MEMORY = ["layout.tensor=1", "checkpoint.every_steps=1000000", "checkpoint.every_seconds=1",
          "checkpoint.local_directory=/dev/shm/lockstep", "checkpoint.partner_copies=true"]


def slots(*nodes):
    return "".join(f"{node.name} slots=1\n" for node in nodes)


def saved_steps(text):
    return [int(step) for step in re.findall(pattern("train.saved", step=r"(\d+)"), text)]


def wait_for_saves(tiny, run, count, process):
    before = len(saved_steps(tiny.log(run)))
    hosts.wait_for(lambda: len(saved_steps(tiny.log(run))) >= before + count or process.poll() is not None,
                   f"{run} is saved {count} times")


def lose(tiny, run, process, *lost):
    """Hosts die together in a run, which ends."""
    for host in lost:
        host.kill()
    hosts.wait_for(lambda: process.poll() is not None, f"{run}: mpirun.sh ends")
    job.expect(process.returncode == 75, f"{run}: mpirun.sh ended with {process.returncode}")
    hosts.wait_for(lambda: not any(map(job.processes, ("lockstep", "orted", "orterun", "cat"))),
                   f"{run}: nothing of it runs")


def resume(tiny, run, hostfile):
    """Until its first new step: the process, and what it said."""
    before = len(tiny.log(run))
    process = start(tiny, run, hostfile, MEMORY)
    step = re.compile(f"{pattern('train.goes_on')}.*^{pattern('step.of')}", re.DOTALL | re.MULTILINE)
    hosts.wait_for(lambda: step.search(tiny.log(run)[before:]) or process.poll() is not None,
                   f"{run}: first new step")
    return process, tiny.log(run)[before:]


def stop(tiny, run, process):
    process.send_signal(signal.SIGUSR1)
    code = process.wait(timeout=hosts.PATIENCE)
    job.expect(code == 75, f"{run}: stopped with {code}: {tiny.log(run)[-2000:]}")


def check_memory(tiny):
    """Checkpoints in the memory of hosts, by time. What lost hosts held is read from their partners."""
    run, folder = "memory", tiny.folder / "memory" / "checkpoints"
    nodes = [hosts.Host(number) for number in range(4, 11)]
    process = start(tiny, run, slots(*nodes[:4]), MEMORY)
    wait_for_saves(tiny, run, 2, process)
    lose(tiny, run, process, nodes[2], nodes[3])  # neighbours
    newest = saved_steps(tiny.log(run))[-1]
    process, said = resume(tiny, run, slots(*nodes[:2], *nodes[4:6]))
    loaded = re.search(pattern("train.loaded_from_hosts", step=r"(\d+)", remote=r"(\S+ \S+)"), said)
    # A save that no rank could announce may be whole.
    job.expect(loaded and int(loaded[1]) >= newest and loaded[2] != "0 B",
               f"{run}: step {newest} is not loaded from partners: {said}")
    job.expect(not list(folder.glob("step-*")), f"{run}: the shared directory was used: {list(folder.iterdir())}")
    wait_for_saves(tiny, run, 1, process)
    stop(tiny, run, process)  # the last checkpoint is due in the run's directory, too
    stopped = saved_steps(tiny.log(run))[-1]
    job.expect(tiny.checkpoints(run) == [stopped], f"{run}: not only step {stopped}: {tiny.checkpoints(run)}")

    damage = (f"file=$(echo /dev/shm/lockstep/*/step-*{stopped}/rank-00000.safetensors) && "
              "printf damage | dd of=$file bs=1 seek=$(($(stat -c %s $file) - 100)) conv=notrunc")
    hosts.sh(*nodes[0].on("sh", "-c", damage))
    process, said = resume(tiny, run, slots(*nodes[:2], *nodes[4:6]))
    job.expect(re.search(f"{pattern('train.other_copies', step=stopped)}.*rank-00000.safetensors", said),
               f"{run}: the damage is not reported: {said}")
    expect_said(tiny, run, says("train.goes_on", step=stopped))

    wait_for_saves(tiny, run, 1, process)
    lose(tiny, run, process, nodes[0], nodes[4])  # partners of each other
    process, said = resume(tiny, run, slots(nodes[6], nodes[1], hosts.Host(11), nodes[5]))
    job.expect(re.search(pattern("train.files_missing"), said) and says("train.goes_on", step=stopped) in said,
               f"{run}: step {stopped} is not loaded from disk: {said}")
    stop(tiny, run, process)

    there = tiny.numbers(run)
    calm = start(tiny, "calm", slots(nodes[6], nodes[1], nodes[5], hosts.Host(12)), ["layout.tensor=1"])
    tiny.wait_for_steps("calm", len(there), calm)
    stop(tiny, "calm", calm)
    job.expect(there == tiny.numbers("calm")[:len(there)], f"{run}: not the bits of an undisturbed run")


# Slurm

def start_slurm():
    nodes = [hosts.Host(number) for number in (1, 2, 3)]
    return nodes, slurm.Slurm(nodes, slurmd_timeout=10)


def boot(cluster, number):
    idle = cluster.idle()
    host = hosts.Host(number)
    cluster.start(host)
    hosts.wait_for(lambda: cluster.idle() == idle + 1, f"{host.name} is idle")
    return host


def is_requeued(number):
    return "Restarts=1 " in hosts.sh("scontrol", "show", "job", number)


def start_under_slurm(tiny, cluster, run, nodes, options=()):
    """The number of the job, after its first save."""
    number = cluster.submit(tiny, run, *SETTINGS, options=options,
                            launcher=("sbatch", f"--nodes={nodes}", "--ntasks-per-node=2"))
    wait_for_a_save(tiny, run, [])
    return number


def cancel(cluster, number):
    hosts.sh("scancel", number)
    hosts.wait_for(lambda: cluster.state(number) == "CANCELLED", "the job is cancelled")
    job.expect_nothing_runs("lockstep")


def check_slurm_ci(tiny):
    """A spare within the allocation takes the place of the host."""
    nodes, cluster = start_slurm()
    number = start_under_slurm(tiny, cluster, "second", 3, ["--spares=1"])
    Death(tiny, "second", nodes[1]).wait_for_a_step(SPARE_LIMIT)
    expect_said(tiny, "second", placed("n1", "n3"))
    job.expect(not is_requeued(number), "the job was requeued")
    tiny.wait_for_steps("second", len(tiny.numbers("second")) + 4)
    cancel(cluster, number)
    tiny.expect_the_bits_of_one_host("second")


def check_slurm_full(tiny):
    """Without a spare the job is requeued: by the script, and by Slurm if the node of the script is lost."""
    nodes, cluster = start_slurm()
    number = start_under_slurm(tiny, cluster, "requeued", 2)
    death = Death(tiny, "requeued", nodes[1])
    death.wait_for("requeued", lambda: is_requeued(number))
    death.wait_for_a_step(REQUEUE_LIMIT)
    expect_said(tiny, "requeued", placed("n1", "n3"))
    cancel(cluster, number)
    tiny.expect_the_bits_of_one_host("requeued")

    nodes[1] = boot(cluster, 2)
    number = start_under_slurm(tiny, cluster, "batch", 2)
    death = Death(tiny, "batch", nodes[0])
    death.wait_for("requeued", lambda: is_requeued(number))
    death.wait_for_a_step(REQUEUE_LIMIT)
    expect_said(tiny, "batch", placed("n2", "n3"))
    cancel(cluster, number)
    tiny.expect_the_bits_of_one_host("batch")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    launcher, tier = sys.argv[2:]
    if launcher == "slurm":
        slurm.check_installed()
    hosts.become_head()
    tiny = job.Job(sys.argv[1])
    try:
        globals()[f"check_{launcher}_{tier}"](tiny)
    except RuntimeError:
        print(slurm.Slurm.logs(), *(path.read_text(errors="replace")[-2000:]
                                    for path in tiny.folder.glob("*.log")), sep="\n")
        raise
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
