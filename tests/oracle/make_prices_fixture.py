#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/prices.json: estimated times of random calls on random GPUs.

The formulas are those of docs/planning.md, written a second time. tests/launch/plan/time_model_test.cpp
compares launch/plan/time_model.h with the file.

usage: make_prices_fixture.py [--check]          (needs only Python 3.11)

--check: compares the file with new estimates, and does not write it.
"""
import json
import math
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "oracle" / "fixtures" / "prices.json"
SEED = 20
TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.9))  # rows, columns, share of the rate


def size(least, most):
    """Draws a size, log-uniform; half of the draws are multiples of 64."""
    value = int(least * (most / least) ** random.random())
    return max(64, value // 64 * 64) if random.random() < 0.5 else value


def gpu():
    """Draws a GPU and the efficiency of an engine."""
    def between(least, most):
        return float(f"{random.uniform(least, most):.4g}")

    return dict(
        bf16=between(3e14, 2.5e15), multiprocessors=random.choice((108, 114, 132, 148)), hbm=between(1.5e12, 8e12), nvlink=between(2e11, 7e11),
        nic=between(5e9, 5e10), sustained=between(0.5, 0.9), power=between(0.5, 1), products=between(0.9, 1.1), attention=between(0.3, 1.1),
        attention_backward=between(0.6, 1), network=between(0.4, 1), node_hop=between(1e-5, 8e-5), node_level=between(1e-5, 8e-5),
        fp8_gain=between(1.5, 2), rowwise_gain=between(1, 1.3), tile_steps=between(100, 250), head_exponent=between(0.05, 0.3))


def product_seconds(g, dtype, M, N, K):
    gain = dict(bf16=1, fp8=g["fp8_gain"], fp8_rowwise=g["rowwise_gain"])[dtype]
    size_in = 2 if dtype == "bf16" else 1
    steps = K + g["tile_steps"] * (1 if dtype == "bf16" else g["fp8_gain"])
    work = math.inf
    for rows, columns, rate in TILES:
        waves = math.ceil(M / rows) * math.ceil(N / columns) / g["multiprocessors"]
        waves += 0.5 * (math.ceil(waves) - waves)
        work = min(work, waves * g["multiprocessors"] * 2 * rows * columns * steps / rate)
    compute = work / (g["bf16"] * g["sustained"] * g["products"] * gain)
    traffic = (size_in * (M * K + N * K) + 2 * M * N) / (0.85 * g["hbm"])
    return (compute**4 + traffic**4) ** 0.25 + 3e-6


def attention_seconds(g, flops, sequence, head):
    """Forward and backward."""
    rate = g["bf16"] * math.sqrt(g["power"]) * g["attention"] * min(1, head / 128) ** g["head_exponent"]
    return (flops / (rate * 0.72 * sequence / (sequence + 969)),
            2.5 * flops / (rate * g["attention_backward"] * 0.637 * sequence / (sequence + 1439)))


def ring(g, ranks, inside):
    """Bus bandwidth and latency."""
    nodes = -(-ranks // inside)
    adapters = inside * g["nic"] * g["network"]
    bandwidth = g["nvlink"] if nodes == 1 else min(g["nvlink"], adapters) if inside > 1 else adapters
    return bandwidth, 8.4e-6 + (ranks - nodes) * 3.4e-6 + (nodes - 1) * g["node_hop"]


def gather_seconds(g, total, ranks, inside, calls):
    bandwidth, latency = ring(g, ranks, inside)
    return calls * latency + total * (ranks - 1) / ranks / bandwidth


def all_reduce_seconds(g, total, ranks, inside, bucket):
    bandwidth, latency = ring(g, ranks, inside)
    tree = 8.4e-6 + 2 * ((inside - 1) * 4e-6 + math.log2(ranks / inside) * g["node_level"])
    return math.ceil(total / bucket) * min(2 * latency, tree) + 2 * total * (ranks - 1) / ranks / bandwidth


def products(count):
    for _ in range(count):
        g, dtype = gpu(), random.choice(("bf16", "fp8", "fp8_rowwise"))
        M, N, K = size(16, 131072) / random.choice((1, 1, 8)), size(16, 32768), size(16, 32768)
        yield dict(gpu=g, dtype=dtype, M=M, N=N, K=K, seconds=product_seconds(g, dtype, M, N, K))


def attentions(count):
    for _ in range(count):
        g, head, sequence = gpu(), random.choice((32, 64, 80, 96, 128, 192)), size(128, 131072)
        flops = 2.0 * sequence**2 * 8 * head
        yield dict(gpu=g, flops=flops, sequence=sequence, head=head, seconds=attention_seconds(g, flops, sequence, head))


def collectives(count):
    for _ in range(count):
        g, ranks = gpu(), int(2 ** (1 + 11 * random.random()))
        inside = min(ranks, random.choice((1, 2, 4, 8)))
        total, calls, bucket = float(size(64, 2**36)), random.randint(1, 50), float(size(2**20, 2**28))
        yield dict(gpu=g, total=total, ranks=ranks, inside=inside, calls=calls, bucket=bucket,
                   gather=gather_seconds(g, total, ranks, inside, calls), all_reduce=all_reduce_seconds(g, total, ranks, inside, bucket))


def is_same(made, there, where="prices.json"):
    """Compares with a tolerance for rounding, because math libraries differ in the last digit."""
    if isinstance(made, dict) and isinstance(there, dict) and made.keys() == there.keys():
        return all([is_same(made[key], there[key], f"{where}: {key}") for key in made])
    if isinstance(made, list) and isinstance(there, list) and len(made) == len(there):
        return all([is_same(one, other, f"{where}[{i}]") for i, (one, other) in enumerate(zip(made, there))])
    numbers = isinstance(made, float) and isinstance(there, (int, float))
    if made == there or numbers and math.isclose(made, there, rel_tol=1e-9):
        return True
    print(f"{where}: expected {made}, got {there}; run tests/oracle/make_prices_fixture.py")
    return False


def main():
    random.seed(SEED)
    made = dict(products=list(products(60)), attentions=list(attentions(40)), collectives=list(collectives(60)))
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(one) for one in cases) + "\n]" for name, cases in made.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if sys.argv[1:] == ["--check"]:
        return 0 if is_same(json.loads(text), json.loads(FILE.read_text())) else 1
    FILE.write_text(text)
    print(f"{FILE.relative_to(ROOT)}: {', '.join(f'{len(cases)} {name}' for name, cases in made.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
