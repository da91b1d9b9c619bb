"""Predicts rows of throughput.csv that were left out of the fit.

usage: leave_out.py BENCH        (see fit.py)

Each engine, each source, all runs on more than 128 GPUs and all models below 1B are left out in turn. The last lines are
quantiles of measured / predicted time by number of GPUs: the bands of launch/plan/plan_band.cpp. They are those of the rows
with their engine left out and of unfitted.csv together.
"""
import sys

import numpy as np

from fit import CSV, Rows, summary


def number(text):
    try:
        return float(text)
    except ValueError:
        return 0.0


def leave_out(rows, groups):
    """Ratios of all rows, each predicted by a fit without its group."""
    ratios = np.empty(len(groups))
    for group in sorted(set(groups)):
        out = groups == group
        ratios[out] = rows.ratios(rows.fit(np.flatnonzero(~out)))[out]
        print("  " + summary(f"without {group}"[:38], ratios[out]), flush=True)
    return ratios


def predict(what, rows, out):
    print(summary(what, rows.ratios(rows.fit(np.flatnonzero(~out)))[out]), flush=True)


def main(bench):
    rows, unfitted = Rows(bench), Rows(bench, CSV.parent / "unfitted.csv")
    billions = np.array([number(row["params_b"]) for row in rows.all])
    by_source = leave_out(rows, np.array([row["source"].split(" (")[0].split(";")[0] for row in rows.all]))
    by_engine = leave_out(rows, rows.engine)
    print(summary("a source left out", by_source))
    print(summary("an engine left out", by_engine))
    predict("fitted on up to 128 GPUs, above", rows, rows.gpus > 128)
    predict("fitted on 1B and more, below", rows, (billions > 0) & (billions < 1))
    others = unfitted.ratios(rows.fit(np.arange(len(rows.all))))
    print(summary("unfitted.csv", others))
    for least, most in ((1, 8), (9, 128), (129, 1e9)):
        kept = np.concatenate([ratios[(gpus >= least) & (gpus <= most)]
                               for ratios, gpus in ((by_engine, rows.gpus), (others, unfitted.gpus))])
        print(f"{least} to {most:g} GPUs: measured / predicted time, p10 to p90: "
              f"{np.quantile(kept, 0.1):.3f} to {np.quantile(kept, 0.9):.3f} ({len(kept)} rows)")


if __name__ == "__main__":
    main(sys.argv[1])
