#!/usr/bin/env python3
"""launch/cluster/mpirun.sh trains on two pretend hosts, stops and goes on. A worker that ends stops it too.

usage: mpirun_test.py LOCKSTEP

Exit 77 (skipped) without root, namespaces or mpirun.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import hosts
import job

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

# Read by sh on each host.
VARIABLES = ["LD_LIBRARY_PATH", "LOCKSTEP_TABLE_KEY", "NCCL_DEBUG", "NCCL_IB_HCA",
             "NCCL_SOCKET_IFNAME"]
SHOW = 'echo "on $(hostname):' + "".join(f" ${name}" for name in VARIABLES) + '"'


def check_variables(launcher, given, shown):
    done = subprocess.run([*map(str, launcher), "sh", "-c", SHOW], env=dict(os.environ, **given),
                          timeout=hosts.PATIENCE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True)
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("on "))
    expected = [f"on {host}: {shown}" for host in ("n1", "n1", "n2", "n2")]
    job.expect(done.returncode == 0 and said == expected, f"variables: {said}, not {expected}")


def check_worker(tiny, launcher, node):
    """Kubernetes ends the pod of one worker: SIGTERM to the first process of its container."""
    worker = subprocess.Popen(node.on(job.EXAMPLES / "worker.sh", "sleep", "infinity"))
    process = tiny.start(launcher, "worker")
    tiny.wait_for_steps("worker", 4, process)
    hosts.sh(*node.on("pkill", "-TERM", "--full", "bash .*worker.sh"))
    code = process.wait(timeout=hosts.PATIENCE)
    stopped = len(tiny.numbers("worker"))
    job.expect(code == 75 and says("train.stopped", step=stopped) in tiny.log("worker") and
               tiny.checkpoints("worker") == [stopped], f"a worker ends: {code} {tiny.log('worker')[-2000:]}")
    job.expect(worker.wait(timeout=hosts.PATIENCE) == 0, f"worker.sh ended with {worker.returncode}")


def main():
    if shutil.which("mpirun") is None:
        hosts.skip("mpirun is not installed (package openmpi-bin)")
    hosts.become_head()
    nodes = [hosts.Host(number) for number in (1, 2)]
    tiny = job.Job(sys.argv[1])
    launcher = [job.EXAMPLES / "mpirun.sh", tiny.hostfile]

    given = {"LD_LIBRARY_PATH": "/opt/nccl/lib:/opt/more", "LOCKSTEP_TABLE_KEY": "a key",
             "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}
    check_variables(launcher, given, " ".join(given.values()) + " =eth0")
    check_variables(launcher, dict(given, NCCL_SOCKET_IFNAME="ib"), " ".join(given.values()) + " ib")

    tiny.run_steps(launcher, "two_hosts", 4, signal.SIGTERM)
    said = tiny.log("two_hosts")
    for line in (f"{says('launch.started', launcher='mpirun', rank=0, ranks=4)}; {says('launch.by_mpi')}",
                 says("launch.on_hosts", ranks=4, hosts=2), says("launch.host", host="n1", ranks="0-1"),
                 says("launch.host", host="n2", ranks="2-3")):
        job.expect(line in said, f"the log has no '{line}': {said}")
    stopped = len(tiny.numbers("two_hosts"))
    job.expect(says("train.stopped", step=stopped) in said, f"no word of the stop: {said}")
    tiny.run_steps(launcher, "two_hosts", 4, signal.SIGINT)
    job.expect(says("train.goes_on", step=stopped) in tiny.log("two_hosts"),
               f"it does not go on: {tiny.log('two_hosts')}")
    tiny.expect_the_bits_of_one_host("two_hosts")
    check_worker(tiny, launcher, nodes[1])

    # What tensor ranks share stays inside a host.
    code, said = tiny.run(launcher, "refused", "layout.tensor=4")
    job.expect(code == 78 and says("layout.spans_hosts", tensor=4) in said and
               says("layout.ranks_of_host", host="n2", count=2, ranks="2-3") in said,
               f"tensor ranks across hosts: {code} {said}")
    last = said.splitlines()[-1]
    job.expect(last.startswith("mpirun.sh: exit code 78: ") and says("layout.spans_hosts", tensor=4) in last,
               f"the last line is not the reason: {said}")

    # Hosts of different sizes: some groups of ranks lie in one of them, others in two.
    hosts.Host(3)
    uneven = tiny.folder / "uneven_hosts"
    uneven.write_text("n1 slots=4\nn2 slots=2\nn3 slots=2\n")
    settings = ["layout.tensor=1", "layout.replicate=2", "layout.shard=4", "train.steps=3",
                "train.micro_batch=1"]
    code, said = tiny.run([job.EXAMPLES / "mpirun.sh", uneven], "uneven", *settings)
    job.expect(code == 0 and says("launch.on_hosts", ranks=8, hosts=3) in said, f"uneven hosts: {code} {said}")
    one_host = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "8"]
    code, said = tiny.run(one_host, "even", *settings)
    losses = [[step[1] for step in tiny.numbers(run)] for run in ("uneven", "even")]
    job.expect(code == 0 and len(losses[0]) == len(losses[1]) == 3 and
               all(abs(a - b) <= 1e-5 * b for a, b in zip(*losses)), f"uneven hosts: {losses}")
    job.expect_nothing_runs("lockstep")
    job.expect_nothing_runs("orted")
    return 1 if job.failures else 0


if __name__ == "__main__":
    sys.exit(main())
