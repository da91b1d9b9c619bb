#!/usr/bin/env python3
"""A host that computes slower than the others, under launch/cluster/mpirun.sh: all ranks wait for it, so that their
steps take as long as its own, and the log names it.

usage: slow_host_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces or mpirun.
"""

import os
import pathlib
import re
import shutil
import signal
import sys
import threading
import time

import hosts
import job
import tiny_run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern  # noqa: E402

SLOW = 3  # a rank of n2
EVERY = 5  # steps
# Steps longer than the times for which a rank is stopped.
SETTINGS = ["train.batch_tokens=16384", f"plan.compare_every_steps={EVERY}", f"log.every_steps={EVERY}"]


class Slowed:
    """A process that gets three quarters of the time less, until the end of `with`."""

    def __init__(self, pid):
        self.pid, self.ends = pid, threading.Event()
        self.thread = threading.Thread(target=self.slow)

    def slow(self):
        while not self.ends.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    hosts.become_head()
    for number in (1, 2):
        hosts.Host(number)
    tiny = job.Job(sys.argv[1])
    process = tiny.start([job.EXAMPLES / "mpirun.sh", tiny.hostfile], "slow", *SETTINGS)
    tiny.wait_for_steps("slow", 5, process)
    named = re.compile(pattern("train.slow_rank", rank=SLOW, host="n2", time=r"[\d.]+ m?s", times=r" *([\d.]+)", ranks=4,
                               count=3))
    with Slowed(job.ranks()[SLOW]):
        named_soon = hosts.passes(lambda: named.search(tiny.log("slow")) or process.poll() is not None, 2 * hosts.PATIENCE)
    job.expect(named_soon, "the slow rank is named within some minutes")
    # Of both ranks of the host now this one is the slower, now that one.
    both = re.compile(pattern("train.slow_ranks", ranks="2, 3", host="n2", time=r"[\d.]+ m?s"))
    with Slowed(job.ranks()[SLOW - 1]), Slowed(job.ranks()[SLOW]):
        named_soon = hosts.passes(lambda: both.search(tiny.log("slow")) or process.poll() is not None, 2 * hosts.PATIENCE)
    job.expect(named_soon and both.search(tiny.log("slow")), f"both ranks of a host are slow: {tiny.log('slow')[-3000:]}")
    process.send_signal(signal.SIGUSR1)
    code = process.wait(timeout=hosts.PATIENCE)
    log = tiny.log("slow")
    job.expect(code == 75, f"mpirun.sh ends with {code}: {log[-2000:]}")
    found = named.search(log)
    job.expect(found and float(found[1]) > 1.5, f"the slow rank is not named: {log[-3000:]}")
    told = [line for line in tiny_run.metrics(tiny.folder / "slow") if "slowest_rank" in line]
    slow = [line for line in told if line["slowest_rank"] == SLOW and line["slowest_rank_ratio"] > 1.1]
    job.expect(len(slow) >= 3, f"metrics.jsonl says of the slowest rank: {told}")
    job.expect(all(line["step"] % EVERY == 1 for line in told), f"compared each {EVERY} steps, read behind the next: {told}")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
