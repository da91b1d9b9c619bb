#!/usr/bin/env python3
"""Training steps of GPT-2 in llm.c (github.com/karpathy/llm.c), to compare with gpu_bench's.

usage: llmc_bench.py PROGRAM MODEL [--steps N]
       PROGRAM: a built train_gpt2cu
       MODEL: gpt2_124m gpt2_1.5b, and for a try gpt2_tiny

A step is four micro-batches of random tokens, the clipped global norm, and AdamW, as gpu_bench's, from
random weights; nothing is recomputed. llm.c is run without and with its fusion of GELU into the matrix
products, and the faster one counts. It keeps 16 bytes for a parameter: bf16 weight and gradient, fp32 master
and two moments. Where memory does not suffice, the micro-batch is halved and there are twice as many. Prints
tokens a second, best and median.
"""

import argparse
import array
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

MICRO_BATCHES = 4
LENGTH = 1024
VOCABULARY = 50257
# llm.c's name of the model, and the sequences of a micro-batch.
MODELS = {"gpt2_124m": ("d12", 64), "gpt2_1.5b": ("d48", 16), "gpt2_tiny": ("d6", 4)}
# Of each step llm.c prints, among other things, its loss and its time.
STEP = re.compile(r"^step +\d+/\d+ \| loss (\S+) .*\| ([\d.]+) ms \|.* tok/s$", re.MULTILINE)


def write_tokens(path, count):
    """A shard of llm.c: int32[256], of which [0] is 20240520, [1] the version 1, [2] the tokens; uint16."""
    draw = random.Random(1)
    header = array.array("i", [20240520, 1, count] + [0] * 253)
    tokens = array.array("H", (draw.randrange(VOCABULARY) for _ in range(count)))
    with open(path, "wb") as file:
        header.tofile(file)
        tokens.tofile(file)


def run(program, descriptor, sequences, micro_batches, fusion, steps, work):
    """Seconds of each step but the first two, which warm up; None where memory does not suffice."""
    options = {"i": "tokens.bin", "j": "tokens.bin", "e": descriptor, "b": sequences, "t": LENGTH,
               "d": micro_batches * sequences * LENGTH, "x": steps + 2, "l": 1e-4, "c": 0.1, "r": 0,
               "ge": fusion, "v": 10**6, "m": 1, "s": 0, "h": 0}  # v to h: next to no evaluation
    command = [program] + [str(word) for name, value in options.items() for word in (f"-{name}", value)]
    done = subprocess.run(command, cwd=work, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0 and "out of memory" in done.stdout:
        return None
    found = STEP.findall(done.stdout)
    if done.returncode != 0 or len(found) != steps + 2:
        raise SystemExit(f"{done.stdout[-3000:]}\nllm.c ended with {done.returncode} and told of "
                         f"{len(found)} steps, expected {steps + 2}")
    if "cudaMallocManaged" in done.stdout:  # its optimizer's state is on the host
        return None
    if not all(math.isfinite(float(loss)) for loss, _ in found):
        raise SystemExit("llm.c's loss is not finite")
    return [float(milliseconds) / 1e3 for _, milliseconds in found[2:]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    descriptor, sequences = MODELS[options.model]
    micro_batches, best = MICRO_BATCHES, None
    step_tokens = micro_batches * sequences * LENGTH
    with tempfile.TemporaryDirectory() as work:
        write_tokens(os.path.join(work, "tokens.bin"), 2 * step_tokens + 1)
        while best is None:
            for fusion in 0, 2:
                seconds = run(program, descriptor, sequences, micro_batches, fusion, options.steps, work)
                if seconds is None:
                    continue
                print(f"  GELU fusion {fusion}: {1e3 * statistics.median(seconds):.2f} ms", flush=True)
                if best is None or statistics.median(seconds) < statistics.median(best):
                    best = seconds
            if best is None:
                if sequences == 1:
                    raise SystemExit("out of memory with one sequence")
                sequences, micro_batches = sequences // 2, micro_batches * 2
                print(f"  out of memory; retrying with {sequences} sequences", flush=True)
    row = f"llm.c {options.model}, {sequences} x {LENGTH}"
    print(f"{row:<36} {step_tokens / min(best):9.0f} {step_tokens / statistics.median(best):9.0f} "
          "tokens/s, best and median", flush=True)


if __name__ == "__main__":
    sys.exit(main())
