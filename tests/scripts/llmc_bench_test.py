#!/usr/bin/env python3
"""Checks tests/bench/gpu/llmc_bench.py, and the part gpt2_tiny of tests/gpu/run.sh, by a stand-in for
llm.c's train_gpt2cu that reads what llm.c reads and prints a step as llm.c does."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STANDIN = r'''#!/usr/bin/env python3
import array, os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert all(name.startswith("-") and len(name) in (2, 3) for name in options), options
B, T, steps, batch = (int(options[name]) for name in ("-b", "-t", "-x", "-d"))
assert (options["-e"], T) == ("d6", 1024) and batch == 16 * T and batch % (B * T) == 0, options
assert int(options["-v"]) > 0  # llm.c divides by it
data = open(options["-i"], "rb").read()
header, tokens = array.array("i", data[:1024]), array.array("H", data[1024:])
assert list(header[:2]) == [20240520, 1] and header[2] == len(tokens) > B * T and max(tokens) < 50257
print("| precision             | BF16                                               |")
if B > int(os.environ.get("STANDIN_FITS", "64")):
    print("[CUDA ERROR] at file train_gpt2.cu:378:\nout of memory")
    sys.exit(1)
print("val loss 11.009678")
for step in range(1, steps + 1):
    # the first two are slow; with the fusion of GELU 40 ms, without it 50
    ms = 900.0 if step < 3 else 40.0 if options["-ge"] == "2" else 50.0
    loss = os.environ.get("STANDIN_LOSS", "%7.6f" % (11 - step / 10))
    print("step %4d/%d | loss %s (%+.2fz)| norm %6.4f (%+.2fz)| lr %.2e | %.2f ms | %.1f%% bf16 MFU | "
          "%.0f tok/s" % (step, steps, loss, float("nan"), 15.5, 0, 1e-4, ms, 41.2, 123456))
print("val loss 9.0\ntotal average iteration time: 40.000000 ms")
'''


def bench(program, **environment):
    return subprocess.run([sys.executable, "-B", ROOT / "tests/bench/gpu/llmc_bench.py", program,
                           "gpt2_tiny", "--steps", "2"], env=dict(os.environ, **environment), text=True,
                          check=False, capture_output=True)


def row(sequences):
    """16 x 1024 tokens in 40 ms."""
    return f"{f'llm.c gpt2_tiny, {sequences} x 1024':<36}    409600    409600 tokens/s, best and median"


def ratio(ours, program, work):
    """What that part says where our own rows of the model are `ours`."""
    (work / "steps_gpt2_tiny.out").write_text(ours)
    done = subprocess.run([ROOT / "tests/gpu/run.sh", "--dry-run", "gpt2_tiny"], text=True, check=False,
                          env=dict(os.environ, LOCKSTEP_LLMC=str(program.parent)), capture_output=True)
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory) / "train_gpt2cu"
        program.write_text(STANDIN)
        program.chmod(0o755)
        done = bench(program)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == row(4), done
        assert "GELU fusion 0: 50.00 ms\n  GELU fusion 2: 40.00 ms" in done.stdout, done.stdout
        done = bench(program, STANDIN_FITS="2")
        assert "out of memory; retrying with 2 sequences" in done.stdout, done
        assert done.stdout.splitlines()[-1] == row(2), done.stdout
        done = bench(program, STANDIN_LOSS="nan")
        assert done.returncode != 0 and "not finite" in done.stderr, done

        work = ROOT / "build" / "gpu_dry_run"
        work.mkdir(parents=True, exist_ok=True)
        said = "\n".join(f"{name:<28} {best:9.0f} {median:9.0f}   40.0%   42.0%      9.0 GiB |"
                         for name, best, median in (
                             ("GPT-2 124M, 4 x 1k", 900000, 900000), ("GPT-2 tiny, 4 x 1k", 460000, 450000),
                             ("    attention by cuDNN", 500000, 491520), ("      and fp8", 900000, 900000)))
        text = ratio(said, program, work)
        assert "491520 tokens/s, llm.c 409600: 1.20 times as fast (goal 1.15)" in text, text
        test = "gpt2_tiny_in_bf16_is_1.15_times_as_fast_as_llmc"
        assert f"passed   {test}," in text, text
        text = ratio(said.replace("491520", "460000"), program, work)
        assert "1.12 times as fast" in text and f"FAILED   {test} (" in text, text
        (work / "steps_gpt2_tiny.out").unlink()


if __name__ == "__main__":
    main()
