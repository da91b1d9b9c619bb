#!/usr/bin/env python3
"""A bit flips in the memory of one of three ranks that hold the same weights. The run aborts and names the rank,
no checkpoint has the flipped bit, and the same command resumes.

usage: corruption_test.py LOCKSTEP

Exit 77 (skipped) without mpirun or the right to write into another process.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from deaths_test import processes_of
from mpirun_test import ENVIRONMENT, Job, expect, failures
from tiny_run import configuration, numbers, pack

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

RANKS, VICTIM = 3, 1
# Steps are too small to change a weight, so that the test finds the weights in memory by their bytes.
SETTINGS = ["layout.sharding=none", "optimizer.learning_rate=1e-30", "train.steps=1000000",
            "train.micro_batch=1", "train.batch_tokens=288", "checkpoint.every_steps=50",
            "train.weight_hash_every_steps=10", "eval.every_steps=0"]


def weights_in(checkpoint):
    """Sixty-four bytes of an embedding, none of them zero."""
    path = next(checkpoint.glob("rank-*.safetensors"))
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little") + 4096
    return data[begin:begin + 64]


def flip(pid, needle):
    """Flips one bit of each copy of the bytes in the process. Returns the number of copies."""
    found = 0
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            span, rights, _, _, inode = line.split()[:5]
            if not rights.startswith("rw") or inode != "0":
                continue
            begin, end = (int(side, 16) for side in span.split("-"))
            for at in range(begin, end, 1 << 24):  # arenas are mostly reserved: empty pages
                try:
                    memory.seek(at)
                    piece = memory.read(min((1 << 24) + 64, end - at))
                except OSError:
                    continue
                place = piece.find(needle)
                while place >= 0:
                    memory.seek(at + place)
                    memory.write(bytes([needle[0] ^ 1]))
                    found += 1
                    place = piece.find(needle, place + 1)
    return found


def check(lockstep, folder):
    pack(lockstep, folder)
    config = configuration(folder, "llama3")
    job = Job(lockstep, folder)
    run, log = folder / "run", folder / "log"
    with open(log, "w") as out:
        process = subprocess.Popen(job.command(config, run, RANKS, SETTINGS), env=ENVIRONMENT,
                                   stdout=subprocess.DEVNULL, stderr=out)
    first = run / "checkpoints" / "step-00000050"
    deadline = time.time() + 60
    while time.time() < deadline and process.poll() is None and not first.exists():
        time.sleep(0.02)
    needle = weights_in(first)
    begin = len(numbers(run))
    flipped = flip(processes_of(run)[VICTIM], needle)
    expect(flipped > 0, f"no copy of the weights in rank {VICTIM}")
    try:
        code = process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.terminate()
        code = f"only by a signal, {process.wait(timeout=60)}"
    said = log.read_text(errors="replace")
    expect(code == 75, f"ends with {code}: {said[-2000:]}")
    differ = pattern("train.weights_differ", ranks="0, 2", host="[^;]+", rank=VICTIM)
    expect(re.search(differ, said) is not None, said[-2000:])
    print(f"{flipped} copies flipped after step {begin}, ended at step {len(numbers(run))}")
    saved = sorted(path.name for path in (run / "checkpoints").glob("step-????????"))
    for name in saved:
        expect(weights_in(run / "checkpoints" / name) == needle, f"{name} holds the flipped bit")
    code, said = job.run(config, run, RANKS, *SETTINGS[:2], *SETTINGS[3:],
                         f"train.steps={int(saved[-1][5:]) + 12}")
    expect(code == 0 and says("train.goes_on", step=int(saved[-1][5:])) in said,
           f"resumes: {code} {said[-2000:]}")
    return 1 if failures else 0


def main():
    if shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed (openmpi-bin)")
        return 77
    if pathlib.Path("/proc/self/status").read_text().find("CapEff:\t0000000000000000") >= 0:
        print("SKIPPED: only root may write into another process")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        return check(sys.argv[1], folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
