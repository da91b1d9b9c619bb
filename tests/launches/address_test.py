#!/usr/bin/env python3
"""Ranks on two simulated hosts that meet at an address, without MPI, train with the bits of one host under mpirun.

usage: address_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces or mpirun.
"""

import os
import shutil
import signal
import subprocess
import sys

import hosts
import job


class Ranks:
    """Ranks of a run, two on each host: shared memory joins those of a host, TCP the hosts."""

    def __init__(self, tiny, nodes, run, *settings):
        self.processes = []
        for rank in range(2 * len(nodes)):
            place = {"RANK": rank, "WORLD_SIZE": 2 * len(nodes), "LOCAL_RANK": rank % 2, "MASTER_ADDR": "n1",
                     "MASTER_PORT": 29500, "LOCKSTEP_SECRET": "ab" * 32}
            variables = ["env", *(f"{name}={value}" for name, value in place.items())]
            self.processes.append(tiny.start(nodes[rank // 2].on(*variables), run, *settings))

    def wait(self):
        return [process.wait(timeout=hosts.PATIENCE) for process in self.processes]


def has_rings(node):
    """Whether processes of a host have mapped memory of SharedRings."""
    found = subprocess.run(node.on("sh", "-c", "cat /proc/[0-9]*/maps"), capture_output=True, text=True)
    return "memfd:lockstep rings" in found.stdout


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])

    ranks = Ranks(tiny, nodes, "two_hosts")
    tiny.wait_for_steps("two_hosts", 4, ranks.processes[0])
    job.expect(all(has_rings(node) for node in nodes), "ranks of a host share no memory")
    connections = hosts.sh(*nodes[0].on("ss", "--tcp", "--numeric", "--no-header", "state", "established"))
    job.expect(f"{hosts.NETWORK}.2" in connections, f"the hosts have no connection: {connections}")
    os.kill(job.processes("lockstep")[0], signal.SIGUSR1)
    codes = ranks.wait()
    job.expect(codes == [75] * 4, f"stopped: {codes}: {tiny.log('two_hosts')[-2000:]}")
    tiny.expect_the_bits_of_one_host("two_hosts")

    # A host dies: its ranks close no connection.
    ranks = Ranks(tiny, nodes, "two_hosts")
    tiny.wait_for_steps("two_hosts", len(tiny.numbers("two_hosts")) + 4, ranks.processes[0])
    nodes[1].kill()
    codes = [process.wait(timeout=30) for process in ranks.processes[:2]]
    job.expect(codes == [75] * 2, f"a host died: {codes}: {tiny.log('two_hosts')[-2000:]}")
    job.expect("(host n2, pid " in tiny.log("two_hosts"), f"no name of the host: {tiny.log('two_hosts')[-2000:]}")
    job.expect_nothing_runs("lockstep")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
