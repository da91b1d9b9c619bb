#!/usr/bin/env python3
"""Ranks that meet at an address (torchrun's variables) train on CPUs with the bits of mpirun.

usage: address_test.py LOCKSTEP

Exit 77 (skipped) without mpirun.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tiny_run import configuration, metrics, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

ENVIRONMENT = {name: value for name, value in os.environ.items()  # this test may itself run under a launcher
               if not name.startswith(("OMPI_COMM", "PMIX_", "SLURM_"))}
ENVIRONMENT.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", LC_ALL="C")
RANKS = 4

failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(lockstep, config, run, settings):
    command = [lockstep, "train", str(config), "--run", str(run), "--device", "cpu", "--extend"]
    for setting in ["schedule.kind=constant", "train.weight_hash_every_steps=1", *settings]:
        command += ["--set", setting]
    return command


def start(command):
    """Starts the ranks at an address. Returns their processes."""
    place = dict(ENVIRONMENT, WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                 LOCKSTEP_SECRET="ab" * 32)
    return [subprocess.Popen(command, env=dict(place, RANK=str(rank), LOCAL_RANK=str(rank)), start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            for rank in range(RANKS)]


def end(ranks, what, codes=(0,) * RANKS):
    """Waits for them. Returns the text of rank 0."""
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    found = tuple(rank.returncode for rank in ranks)
    expect(found == codes, f"{what}: exit codes {found}: {[text[-700:] for text in said]}")
    return said[0]


def by_mpirun(command, what):
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), *command],
                          env=ENVIRONMENT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=120)
    expect(done.returncode == 0, f"{what} under mpirun: {done.returncode}: {done.stdout[-700:]}")


def bits(run):
    """Losses, norms and hashes of each step, and the weights in the last checkpoint."""
    steps = [tuple(step.get(key) for key in ("step", "loss", "grad_norm", "validation_loss", "weight_hash"))
             for step in metrics(run)]
    last = max((run / "checkpoints").glob("step-????????"), default=None)
    files = {file.name: file.read_bytes() for file in last.glob("*.safetensors")} if last else {}
    return steps, files


def check_bits(lockstep, folder, config, name, settings, ways):
    """All steps by MPI have the bits of three steps by each of two ways: `start` at an address, or None by mpirun."""
    run, half = folder / f"{name}_mpi", ["train.steps=3", *settings]
    by_mpirun(train(lockstep, config, run, settings), name)
    expected = bits(run)
    expect(len(expected[0]) == 6 and all(step[4] for step in expected[0]) and len(expected[1]) > 0,
           f"{name}: nothing to compare: {expected[0]}")
    for before, after in ways:
        run = folder / f"{name}_{before is None}_{after is None}"
        for way, command in ((before, train(lockstep, config, run, half)), (after, train(lockstep, config, run, settings))):
            if way is None:
                by_mpirun(command, name)
            else:
                said = end(start(command), f"{name} at an address")
                expect(says("launch.by_sockets") in said, f"{name}: {said[:500]}")
        found = bits(run)
        expect(found == expected, f"{name}: not the bits of mpirun: {found[0]} {expected[0]}")


def check_death(lockstep, folder, config, name, number):
    """The other ranks end within seconds, and rank 0 names the one that died."""
    ranks = start(train(lockstep, config, folder / name, ["train.steps=1000000", "layout.tensor=2"]))
    deadline = time.time() + 60
    while len(metrics(folder / name)) < 3 and time.time() < deadline:
        time.sleep(0.02)
    files = set(os.listdir("/dev/shm"))
    ranks[number].send_signal(signal.SIGKILL)
    begin = time.time()
    said = end(ranks, name, tuple(-9 if rank == number else 75 for rank in range(RANKS)))
    took = time.time() - begin
    expect(took < 10, f"{name}: the others ended after {took:.1f} s")
    why = f"{says('end.why')} {says('end.rank', rank=number, host=socket.gethostname(), pid=ranks[number].pid)}"
    expect(number == 0 or f"{why} {says('end.died')}" in said, f"{name}: {said[-700:]}")
    expect(files >= set(os.listdir("/dev/shm")), f"{name}: shared memory is left")


def main():
    lockstep = sys.argv[1]
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        pack(lockstep, folder)
        config = configuration(folder, "llama3")
        check_bits(lockstep, folder, config, "tensor_and_shard", ["layout.tensor=2"],
                   ((None, start), (start, None)))
        check_bits(lockstep, folder, config, "shard_and_replicate", ["layout.replicate=2", "precision.compute=bf16"],
                   ((start, start),))
        for number in (0, 2):
            check_death(lockstep, folder, config, f"rank_{number}_dies", number)
    finally:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
