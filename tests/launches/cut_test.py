#!/usr/bin/env python3
"""A host whose cable is cut while it trains, under launch/cluster/mpirun.sh: all ranks end on both sides,
and say who it was; no process stays; the same command goes on.

usage: cut_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces or mpirun.
"""

import pathlib
import re
import shutil
import signal
import sys
import time

import hosts
import job

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

# A rank is silent for 5 s, which is noticed within one more, and leaves within 2 s of that.
RANKS_END = 10  # seconds
ALL_ENDS = RANKS_END + 40  # mpirun.sh waits 20 s for mpirun, 30 s for orted

SETTINGS = ["checkpoint.every_steps=3"]


def ends_within(seconds, programs, since):
    return hosts.passes(lambda: not any(job.processes(program) for program in programs),
                        since + seconds - time.monotonic())


def check_cut(tiny, launcher, run, host):
    before = tiny.checkpoints(run)
    process = tiny.start(launcher, run, *SETTINGS)
    hosts.wait_for(lambda: tiny.checkpoints(run) != before, f"{run} is saved")
    cut = time.monotonic()
    hosts.sh("ip", "link", "set", host, "down")
    job.expect(ends_within(RANKS_END, ["lockstep"], cut),
               f"{host} cut off: after {RANKS_END} s these run: {job.ranks()}")
    job.expect(ends_within(ALL_ENDS, ["lockstep", "orted", "orterun"], cut),
               f"{host} cut off: after {ALL_ENDS} s orted and mpirun run")
    code = process.wait(timeout=hosts.PATIENCE)
    job.expect(code == 75, f"{host} cut off: mpirun.sh ends with {code}: {tiny.log(run)[-2000:]}")
    # Of the other side each rank knows that it is silent: rank 0, on n1, of all, the others of rank 0.
    silent = {here: pattern("end.rank", rank=ranks, host=there, pid=r"\d+") + " " + pattern("end.silent", seconds=r"[\d.]+ s")
              for here, ranks, there in (("n1", "[23]", "n2"), ("n2", "0", "n1"))}
    for rank, here in enumerate(("n1", "n1", "n2", "n2")):
        file = tiny.folder / run / "ended" / f"rank-{rank:05}.txt"
        left = file.read_text()
        job.expect(re.match(silent[here], left),
                   f"{host} cut off: rank {rank} left: {left[:300]}")
        file.unlink()
    reachable = "n1" if host == "n2" else "n2"
    job.expect(re.search(f"{pattern('end.why')} {silent[reachable]}", tiny.log(run)),
               f"{host} cut off: {tiny.log(run)[-2000:]}")
    hosts.sh("ip", "link", "set", host, "up")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    hosts.become_head()
    for number in (1, 2):
        hosts.Host(number)
    tiny = job.Job(sys.argv[1])
    launcher = [job.EXAMPLES / "mpirun.sh", tiny.hostfile]
    for host in ("n2", "n1"):
        check_cut(tiny, launcher, "cut", host)
        last = tiny.checkpoints("cut")[-1]
        tiny.run_steps(launcher, "cut", 2, signal.SIGUSR1)
        job.expect(says("train.goes_on", step=last) in tiny.log("cut"),
                   f"the same command goes on: {tiny.log('cut')[-2000:]}")
    tiny.expect_the_bits_of_one_host("cut")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
