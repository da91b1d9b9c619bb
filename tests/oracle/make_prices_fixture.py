#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/prices.json: estimated times of random calls and of every published row.

The estimates are those of tests/bench/published/prices.py, in which the time model was developed and
fitted. tests/launch/plan/time_model_test.cpp compares launch/plan/time_model.h with the file.

usage: make_prices_fixture.py [--check]          (needs only Python 3.11)

--check: compares the file with new estimates, and does not write it.
"""
import json
import math
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bench" / "published"))
import prices
import rows

FILE = ROOT / "tests" / "oracle" / "fixtures" / "prices.json"
ARITHMETICS = {"bf16": "bf16", "fp8": "fp8", "fp8-rowwise": "fp8_rowwise"}
SEED = 20


def size(least, most):
    """Draws a size, log-uniform; half of the draws are multiples of 64."""
    value = int(least * (most / least) ** random.random())
    return max(64, value // 64 * 64) if random.random() < 0.5 else value


def pick():
    """Draws a GPU and an engine; returns the name and the numbers of each."""
    gpu = random.choice(list(prices.HARDWARE))
    engine = random.choice([e for e in prices.ENGINES if e != "selene"])
    return gpu, prices.HARDWARE[gpu], engine, prices.ENGINES[engine]


def products(count):
    for _ in range(count):
        gpu, hw, engine, numbers = pick()
        M, N, K = size(16, 131072) / random.choice((1, 1, 8)), size(16, 32768), size(16, 32768)
        dtype = random.choice(list(ARITHMETICS))
        yield [gpu, engine, ARITHMETICS[dtype], M, N, K, prices.product_seconds(M, N, K, dtype, hw, numbers)]


def attentions(count):
    for _ in range(count):
        gpu, hw, engine, numbers = pick()
        head, sequence = random.choice((32, 64, 80, 96, 128, 192)), size(128, 131072)
        model = prices.Model(L=1, h=1024, f=1024, H=8, G=8, d=head, V=1024, seq=sequence)
        flops = 2.0 * sequence**2 * model.H * head
        yield [gpu, engine, flops, sequence, head, *prices.attention_seconds(model, prices.Layout(1), flops, hw, numbers)]


def collectives(count):
    for _ in range(count):
        gpu, hw, engine, numbers = pick()
        ranks, inside = int(2 ** (1 + 11 * random.random())), random.choice((1, 2, 4, 8))
        total, calls, bucket = float(size(64, 2**36)), random.randint(1, 50), float(size(2**20, 2**28))
        yield [gpu, engine, total, ranks, inside, calls, bucket, prices.gather_seconds(total, hw, ranks, inside, numbers, calls),
               prices.reduce_seconds(total, hw, ranks, inside, numbers, bucket)]


def runs():
    parts_of = dict(tp="tensor", cp="context", ep="experts", p2p="send", dp="data")
    for row, layout, rate, _, step, parts in rows.predictions(rows.load(), prices.ENGINES):
        yield dict(row=row.i, gpu=row.hw, engine=row.engine, is_stated=row.stated, published=row.published,
                   layout=[layout.gpus, layout.dp, layout.tp, layout.pp, layout.cp, layout.vp, layout.mb, layout.gbs, layout.shard_group],
                   recompute=layout.recompute, tokens_per_second=rate, step_seconds=step,
                   parts={parts_of.get(name, name): seconds for name, seconds in parts.items()})


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
    made = dict(products=list(products(300)), attentions=list(attentions(200)), collectives=list(collectives(300)), runs=list(runs()))
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(one) for one in cases) + "\n]" for name, cases in made.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if sys.argv[1:] == ["--check"]:
        return 0 if is_same(json.loads(text), json.loads(FILE.read_text())) else 1
    FILE.write_text(text)
    print(f"{FILE.relative_to(ROOT)}: {', '.join(f'{len(cases)} {name}' for name, cases in made.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
