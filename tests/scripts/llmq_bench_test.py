#!/usr/bin/env python3
"""Checks tests/bench/gpu/llmq_bench.py, and the parts of Qwen of tests/gpu/run.sh, by a stand-in for LLMQ's
train that reads what LLMQ reads and prints a step as LLMQ does."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STANDIN = r'''#!/usr/bin/env python3
import array, os, sys
options = dict(word[2:].split("=") for word in sys.argv[1:] if "=" in word)
assert "--from-scratch" in sys.argv and options["model-dtype"] == "bf16", sys.argv
B, T, steps, micro = (int(options[n]) for n in ("batch-size", "seq-len", "steps", "grad-accumulation"))
assert (B * micro, T) == ({"Qwen2.5-1.5B": 64, "Qwen2.5-7B": 32}[options["model"]], 1024), options
for name, least in ("train-file", steps * micro * B * T), ("eval-file", B * T):
    data = open(options[name], "rb").read()
    version, size, count, vocabulary, masks = array.array("i", data[8:28])
    tokens = array.array("i", data[1024:])
    assert data[:8] == b"BIN.TOK\n" and (version, size, vocabulary, masks) == (2, 4, 151936, 0)
    assert count == len(tokens) > least and max(tokens) < vocabulary
if B > int(os.environ.get("STANDIN_FITS", "64")):
    print("ERROR: Cuda Error in allocator.cpp:20: cudaErrorMemoryAllocation: out of memory")
    sys.exit(1)
for step in range(steps):  # the first two are slow
    ms = 9000 if step < 2 else 800 if options["matmul-dtype"] == "e4m3" else 1024
    print("[T] step %5d [%4.1f%%] | time: %5d ms | norm %10f | loss %10f | tps %5d | sol 42.9%%" %
          (step, 20.0, ms, 4.315545, float(os.environ.get("STANDIN_LOSS", "11.9")), 35064))
    if step % 2:
        print("\x1b[1m[V] step %5d [%4.1f%%] | time: %5d ms | eval %10f | train %9f | tps %s\x1b[22m" %
              (step, 0.0, 165, 2.9, 3.2, " 148k"))
'''


def bench(program, *options, **environment):
    return subprocess.run([sys.executable, "-B", ROOT / "tests/bench/gpu/llmq_bench.py", program,
                           "qwen2_1.5b", "--steps", "2", *options], env=dict(os.environ, **environment),
                          text=True, check=False, capture_output=True)


def main():
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory) / "build" / "train"
        program.parent.mkdir()
        program.write_text(STANDIN)
        program.chmod(0o755)
        end = "tokens/s, best and median"
        done = bench(program)  # 64 x 1024 tokens in 1.024 s
        assert done.stdout == f"{'LLMQ qwen2_1.5b, 16 x 1024':<36}     64000     64000 {end}\n", done
        done = bench(program, "--fp8", STANDIN_FITS="8")
        assert "out of memory; retrying with 8 sequences" in done.stdout, done
        assert done.stdout.endswith(f"{'LLMQ qwen2_1.5b fp8, 8 x 1024':<36}     81920     81920 {end}\n"), done
        done = bench(program, STANDIN_LOSS="nan")
        assert done.returncode != 0 and "not finite" in done.stderr, done

        work = ROOT / "build" / "gpu_dry_run"
        work.mkdir(parents=True, exist_ok=True)
        ours = {"qwen2_1.5b": 76800, "qwen2_7b": 33600}  # LLMQ's: 64000 and 32000
        for model, rate in ours.items():
            (work / f"steps_{model}.out").write_text(f"{'Qwen 2.5':<28} {rate:9} {rate:9}   40.0%   42.0% |\n")
        done = subprocess.run([ROOT / "tests/gpu/run.sh", "--dry-run", *ours], text=True, check=False,
                              env=dict(os.environ, LOCKSTEP_LLMQ=directory), capture_output=True)
        assert "76800 tokens/s, LLMQ 64000: 1.20 times as fast (goal 1.15)" in done.stdout, done
        assert "33600 tokens/s, LLMQ 32000: 1.05 times as fast" in done.stdout, done
        assert "qwen2_1.5b: 3 passed, 0 failed" in done.stdout, done
        assert "qwen2_7b: 2 passed, 1 failed" in done.stdout, done
        for model in ours:
            (work / f"steps_{model}.out").unlink()


if __name__ == "__main__":
    main()
