"""Predicts rows of throughput.csv that were left out of the fit.

usage: leave_out.py BENCH        (see fit.py)

Left out are: each engine; each source; all runs on more than 128 GPUs; all models below 1B. The last lines are quantiles
of measured / predicted time by number of GPUs, with the engine left out: the bands of launch/plan/plan_band.cpp.
"""
import sys

import numpy as np

from fit import Rows, summary


def engine_of(row):
    source = row["source"]
    for word in ("torchtitan", "pytorch.org", "llm-foundry", "nanotron", "tzafon", "llm.c", "maxtext", "paxml", "fms-fsdp"):
        if word in source:
            return {"pytorch.org": "torchtitan", "tzafon": "nanotron"}.get(word, word)
    return "nemo24" if "24.0" in source or "Megatron-LM README" in source else "nemo25"


def number(text):
    try:
        return float(text)
    except ValueError:
        return 0.0


def leave_out(rows, group_of):
    """Ratios of all rows, each predicted by a fit without its group."""
    groups = np.array([group_of(row) for row in rows.all])
    ratios = np.empty(len(groups))
    for group in sorted(set(groups)):
        out = groups == group
        ratios[out] = rows.ratios(rows.fit(np.flatnonzero(~out)))[out]
        print("  " + summary(f"without {group}"[:38], ratios[out]), flush=True)
    return ratios


def predict(what, rows, out):
    print(summary(what, rows.ratios(rows.fit(np.flatnonzero(~out)))[out]), flush=True)


def main(bench):
    rows = Rows(bench)
    gpus = np.array([number(row["n_gpus"]) or 256 for row in rows.all])
    billions = np.array([number(row["params_b"]) for row in rows.all])
    by_source = leave_out(rows, lambda row: row["source"].split(" (")[0].split(";")[0])
    by_engine = leave_out(rows, engine_of)
    print(summary("a source left out", by_source))
    print(summary("an engine left out", by_engine))
    predict("fitted on up to 128 GPUs, above", rows, gpus > 128)
    predict("fitted on 1B and more, below", rows, (billions > 0) & (billions < 1))
    for least, most in ((1, 8), (9, 128), (129, 1e9)):
        kept = by_engine[(gpus >= least) & (gpus <= most)]
        print(f"{least} to {most:g} GPUs: measured / predicted time, p10 to p90: "
              f"{np.quantile(kept, 0.1):.3f} to {np.quantile(kept, 0.9):.3f} ({len(kept)} rows)")


if __name__ == "__main__":
    main(sys.argv[1])
