#!/usr/bin/env python3
"""Preflight on two pretend hosts, a core for each: of one the link is throttled, then of the other the core
kept busy. Each is named, the other is not.

usage: preflight_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces, mpirun, tc or two cores; or where what else this machine does leaves no
core alone, so that preflight finds nothing well.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import hosts
import job

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

SECONDS = 180  # that preflight may take
TRIES = 5      # on a machine that does other things too

PINNED = """#!/bin/sh
# On the core of this host.
exec taskset --cpu-list "$(cat "$TMPDIR/core")" "$@"
"""


class Preflight:
    def __init__(self, lockstep, cores):
        self.tiny = job.Job(lockstep)
        self.tiny.hostfile.write_text("n1 slots=1\nn2 slots=1\n")
        self.pinned = hosts.SHARED / "pinned"
        self.pinned.write_text(PINNED)
        self.pinned.chmod(0o755)
        for host, core in zip(("n1", "n2"), cores):
            (hosts.SHARED / host / "tmp" / "core").write_text(str(core))
        self.cluster = self.tiny.folder / "cluster.json"
        self.out = ""

    def run(self, scratch=None):
        """The exit code; self.faults: what is said of each host."""
        command = [job.EXAMPLES / "mpirun.sh", self.tiny.hostfile, self.pinned, self.tiny.lockstep,
                   "preflight", self.tiny.config, "--device", "cpu", "--threads", "1",
                   "--cluster-out", self.cluster, "--set", f"plan.cluster={self.cluster}",
                   "--scratch", scratch or self.tiny.folder]
        begin = time.monotonic()
        done = subprocess.run(list(map(str, command)), timeout=4 * SECONDS, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, errors="replace")
        self.seconds = time.monotonic() - begin
        self.out = done.stdout + done.stderr
        of_hosts = pattern("preflight.host", host=r"n\d.*"), pattern("preflight.hosts", hosts=r"n\d.*")
        self.faults = re.findall(f"^({'|'.join(of_hosts)})$", done.stdout, re.MULTILINE)
        print(f"exit {done.returncode} after {self.seconds:.0f} s: {self.faults}", flush=True)
        return done.returncode

    def until(self, happened):
        """Whether it comes true within some runs."""
        return any(happened(self.run()) for _ in range(TRIES))

    def of(self, host, check):
        """What is said of a check on a host."""
        where = pattern("preflight.host", host=host) + ", " + pattern("preflight.of_rank", rank=r"\d+")
        return [fault for fault in self.faults if re.match(rf"{where}( \(.*\))?: {check}", fault)]


def check_cluster(path):
    cluster = json.loads(path.read_text())
    job.expect(cluster["format"] == "lockstep cluster 1", f"{path}: {cluster['format']}")
    job.expect((cluster["nodes"], cluster["ranks_per_node"], cluster["device"]) == (2, 1, "cpu"),
               f"{path}: {cluster}")
    kinds = {(link["collective"], link["domains"]) for link in cluster["links"]}
    job.expect(kinds == {(kind, 2) for kind in ("all_gather", "all_to_all", "all_reduce")},
               f"{path}: {kinds}")
    names = {operator["operator"] for operator in cluster["operators"]}
    job.expect({"matmul_forward", "rmsnorm_forward"} <= names, f"{path}: {names}")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    if shutil.which("tc") is None:
        hosts.skip("tc is not installed (package iproute2)")
    cores = sorted(os.sched_getaffinity(0))[-2:]
    if len(cores) < 2:
        hosts.skip("two pretend hosts need a core each")
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    preflight = Preflight(sys.argv[1], cores)

    absent = preflight.tiny.folder / "absent"
    code = preflight.run(scratch=absent)
    job.expect(code == 78 and f"--scratch {absent}: " in preflight.out and "n1, n2" in preflight.out,
               f"without a folder: exit {code}: {preflight.out}")
    job.expect(not preflight.cluster.exists(), "a cluster.json of a check that could not run")

    preflight.cluster.touch()  # no cluster, but this will write one
    if not preflight.until(lambda code: code == 0):
        job.expect(set(preflight.faults) and code != 0, f"neither well nor ill: {preflight.out}")
        if job.failures:
            return 1
        hosts.skip(f"this machine is busy: {'; '.join(preflight.faults)}")
    job.expect(preflight.seconds < SECONDS, f"preflight takes {preflight.seconds:.0f} s")
    check_cluster(preflight.cluster)
    before = preflight.cluster.read_bytes()

    try:
        hosts.sh(*nodes[1].on("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "400mbit",
                              "burst", "256kb", "latency", "50ms"))
    except RuntimeError as error:
        hosts.skip(f"no link can be throttled here: {error}")
    sends = f"{pattern('check.sends')} .* {pattern('preflight.of_peers')}"
    named = preflight.until(lambda code: code == 75 and preflight.of("n2", sends)
                            and not preflight.of("n1", pattern("check.sends")))
    job.expect(named, f"a throttled link: {preflight.out}")
    job.expect(preflight.cluster.read_bytes() == before, "a faulty cluster overwrites a good one")
    hosts.sh(*nodes[1].on("tc", "qdisc", "delete", "dev", "eth0", "root"))

    busy = subprocess.Popen(nodes[0].on("taskset", "--cpu-list", cores[0], "sh", "-c",
                                        "while :; do :; done"))
    share = f"{pattern('check.share')} .*, {pattern('preflight.at_least', least='90 %')}"
    named = preflight.until(lambda code: code == 75 and preflight.of("n1", share)
                            and not preflight.of("n2", share))
    job.expect(named, f"a busy core: {preflight.out}")
    busy.kill()
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
