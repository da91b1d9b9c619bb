#!/usr/bin/env python3
"""Training steps of Qwen 2.5 in LLMQ (github.com/IST-DASLab/llmq), to compare with gpu_bench's.

usage: llmq_bench.py PROGRAM MODEL [--fp8] [--steps N]
       PROGRAM: LLMQ's built `train`
       MODEL: qwen2_1.5b qwen2_7b

A step is four micro-batches of random tokens, the clipped global norm, and AdamW, as gpu_bench's, from random
weights; nothing is recomputed. Weights, gradients and moments are bf16, 8 bytes a parameter; matrix products
are bf16, with --fp8 e4m3. Where memory does not suffice, the micro-batch is halved and there are twice as
many. Prints tokens a second, best and median.
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
VOCABULARY = 151936
# LLMQ's name of the model, and the sequences of a micro-batch.
MODELS = {"qwen2_1.5b": ("Qwen2.5-1.5B", 16), "qwen2_7b": ("Qwen2.5-7B", 8)}
# Of each step LLMQ prints, among other things, its time and its loss.
STEP = re.compile(r"^\[T\] step .*\| time: +(\d+) ms \|.*\| loss +(\S+) \| tps", re.MULTILINE)
OUT_OF_MEMORY = re.compile("out of memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE)


def write_tokens(path, count):
    """A file of LLMQ: "BIN.TOK\\n"; int32 version 2, 4 bytes a token, tokens, vocabulary, 0 as there is no
    mask; at byte 1024 int32 tokens."""
    draw = random.Random(1)
    header = b"BIN.TOK\n" + array.array("i", [2, 4, count, VOCABULARY, 0]).tobytes()
    tokens = array.array("i", (draw.randrange(VOCABULARY) for _ in range(count)))
    with open(path, "wb") as file:
        file.write(header.ljust(1024, b"\0") + tokens.tobytes())


def run(program, name, sequences, micro_batches, products, steps, work):
    """Seconds of each step but the first two, which warm up; None where memory does not suffice."""
    write_tokens(os.path.join(work, "held_out.bin"), sequences * LENGTH + 1)
    options = {"model": name, "train-file": "tokens.bin", "eval-file": "held_out.bin", "steps": steps + 2,
               "seq-len": LENGTH, "batch-size": sequences, "grad-accumulation": micro_batches,
               "learning-rate": 1e-4, "model-dtype": "bf16", "matmul-dtype": products,
               "opt-m-dtype": "bf16", "opt-v-dtype": "bf16", "gpus": 1, "eval-every-n-steps": 10**6,
               "ckpt-interval": 10**6, "out-dir": "out", "log-file": "log.json"}
    command = [program, "--from-scratch"] + [f"--{key}={value}" for key, value in options.items()]
    paths = [os.path.dirname(program), os.environ.get("LD_LIBRARY_PATH", "")]  # of its own library
    done = subprocess.run(command, cwd=work, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          env=dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths))))
    if done.returncode != 0 and OUT_OF_MEMORY.search(done.stdout):
        return None
    found = STEP.findall(done.stdout)
    if done.returncode != 0 or len(found) != steps + 2:
        raise SystemExit(f"{done.stdout[-3000:]}\nLLMQ ended with {done.returncode} and told of {len(found)} "
                         f"steps, expected {steps + 2}")
    if not all(math.isfinite(float(loss)) for _, loss in found):
        raise SystemExit("LLMQ's loss is not finite")
    return [float(milliseconds) / 1e3 for milliseconds, _ in found[2:]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    name, sequences = MODELS[options.model]
    micro_batches, seconds = MICRO_BATCHES, None
    step_tokens = micro_batches * sequences * LENGTH
    with tempfile.TemporaryDirectory() as work:
        write_tokens(os.path.join(work, "tokens.bin"), (options.steps + 3) * step_tokens + 1)
        while seconds is None:
            seconds = run(program, name, sequences, micro_batches, "e4m3" if options.fp8 else "bf16",
                          options.steps, work)
            if seconds is None:
                if sequences == 1:
                    raise SystemExit("out of memory with one sequence")
                sequences, micro_batches = sequences // 2, micro_batches * 2
                print(f"  out of memory; retrying with {sequences} sequences", flush=True)
    row = f"LLMQ {options.model}{' fp8' if options.fp8 else ''}, {sequences} x {LENGTH}"
    print(f"{row:<36} {step_tokens / min(seconds):9.0f} {step_tokens / statistics.median(seconds):9.0f} "
          "tokens/s, best and median", flush=True)


if __name__ == "__main__":
    sys.exit(main())
