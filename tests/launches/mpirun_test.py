#!/usr/bin/env python3
"""launch/cluster/mpirun.sh trains on two pretend hosts, stops and goes on.

usage: mpirun_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces or mpirun.
"""

import shutil
import signal
import sys

import hosts
import job


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    hosts.become_head()
    for number in (1, 2):
        hosts.Host(number)
    tiny = job.Job(sys.argv[1])
    launcher = [job.EXAMPLES / "mpirun.sh", tiny.hostfile]

    tiny.run_steps(launcher, "two_hosts", 4, signal.SIGTERM)
    said = tiny.log("two_hosts")
    for line in ("mpirun started rank 0 of 4; they talk by MPI", "4 ranks on 2 hosts",
                 "host n1: ranks 0-1"):
        job.expect(line in said, f"the log has no '{line}': {said}")
    stopped = len(tiny.numbers("two_hosts"))
    job.expect(f"stopped by a signal after step {stopped}" in said, f"no word of the stop: {said}")
    tiny.run_steps(launcher, "two_hosts", 4, signal.SIGINT)
    job.expect(f"going on from step {stopped}" in tiny.log("two_hosts"),
               f"it does not go on: {tiny.log('two_hosts')}")
    tiny.expect_the_bits_of_one_host("two_hosts")

    # What tensor ranks share stays inside a host.
    code, said = tiny.run(launcher, "refused", "layout.tensor=4")
    job.expect(code == 78 and "layout.tensor = 4 does not fit" in said and
               "host n2 has 2 ranks (ranks 2-3)" in said,
               f"tensor ranks across hosts: {code} {said}")
    job.expect_nothing_runs("lockstep")
    job.expect_nothing_runs("orted")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
