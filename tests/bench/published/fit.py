"""Fits the constants of tests/bench/published_engine.h to throughput.csv.

usage: fit.py BENCH        (needs numpy and scipy)

BENCH is the program published_bench. It predicts the rows for constants that this script sends. It minimizes log(predicted / published) by least squares with a soft loss. Each
constant has a prior. Copy the printed constants into published_engine.h, and
those of GPUs and of this engine into core/system/hardware.cpp and launch/plan/time_model.h.
"""
import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

CSV = Path(__file__).parent / "throughput.csv"

# constant: prior, and the width of the prior in logarithms
PRIORS = dict(
    sustained_ampere=(0.86, 0.05), sustained_hopper=(0.72, 0.07), power_exponent=(0.9, 0.2),
    slowdown_ampere=(0.2, 0.5), slowdown_hopper=(0.4, 0.5), fp8_gain=(1.6, 0.15), rowwise_gain=(1.3, 0.3), tile_steps=(200, 0.5),
    head_exponent=(0.2, 0.7), cast_delayed=(0.5, 0.5), cast_current=(1.0, 0.5), memory_eager=(1.5, 0.2), memory_compiled=(1.15, 0.1),
    memory_fused=(1.1, 0.1), triton_ampere=(0.8, 0.3), triton_hopper=(0.45, 0.3), flash2_hopper=(0.55, 0.2), cudnn8_hopper=(0.75, 0.2),
    context_imbalance=(0.5, 1.0), tensor_overlap=(0.6, 0.3), data_overlap=(0.85, 0.2), network_rdma=(0.9, 0.1), network_efa=(0.5, 0.15),
    step_python=(0.02, 1.0), spread=(0.01, 0.5))
MOST = dict(  # upper bounds
    tensor_overlap=0.97, data_overlap=0.97)
KEYS = list(PRIORS)
MEAN = np.array([math.log(prior) for prior, _ in PRIORS.values()])
WIDTH = np.array([width for _, width in PRIORS.values()])


class Rows:
    """The rows of a file that can be estimated, and the program that predicts them."""

    def __init__(self, bench, file=CSV):
        self.process = subprocess.Popen([bench, "--serve", file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = np.array(self.process.stdout.readline().split()).reshape(-1, 4)
        self.kept = self.ask(MEAN) > 0
        self.engine, gpus, published, stated = words[self.kept].T
        self.gpus, self.published = gpus.astype(int), published.astype(float)
        self.tolerance = np.where(stated == "1", 0.05, 0.12)  # stated layouts, searched ones
        with open(file, newline="") as text:
            self.all = [row for row, keep in zip(csv.DictReader(text), self.kept) if keep]

    def ask(self, x):
        """Predicted tokens/s of all rows."""
        self.process.stdin.write(" ".join(f"{name} {value!r}" for name, value in constants(x).items()) + "\n")
        self.process.stdin.flush()
        return np.array([float(word) for word in self.process.stdout.readline().split()])

    def ratios(self, x):
        """Predicted / published."""
        return self.ask(x)[self.kept] / self.published

    def fit(self, rows):
        """Logarithms of the constants that fit the rows with these indices, and their standard errors."""
        def residuals(x):
            off = np.log(self.ratios(x)[rows]) / self.tolerance[rows]
            return np.concatenate([soft(off), (x - MEAN) / WIDTH])
        found = least_squares(residuals, MEAN, diff_step=1e-3, max_nfev=12)
        self.errors = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
        return found.x


def constants(x):
    return {name: min(math.exp(value), MOST.get(name, math.inf)) for name, value in zip(KEYS, x)}


def soft(off):
    return np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off * off) - 1) + 1e-12)


def summary(what, ratios):
    off = np.abs(ratios - 1)
    far = int(np.sum(np.maximum(ratios, 1 / ratios) > 1.5))
    return f"{what:40} {len(off):4} rows  mean {100 * off.mean():4.1f} %  median {100 * np.median(off):4.1f} %  over 1.5x: {far}"


if __name__ == "__main__":
    rows = Rows(sys.argv[1])
    x = rows.fit(np.arange(len(rows.all)))
    for (name, value), error, width in zip(constants(x).items(), rows.errors, WIDTH):
        unsure = ", which the rows do not determine" if error > 0.7 * width else ""
        print(f"{name} = {value:.4g} +- {100 * error:.0f} %  (prior {PRIORS[name][0]} +- {100 * width:.0f} %{unsure})")
    print(summary("fitted on all rows", rows.ratios(x)))
