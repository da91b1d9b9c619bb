"""Fit the numbers of profiles.toml: least squares of log(predicted / published), soft for outliers, with priors."""
import json, math, sys, time
import numpy as np
from scipy.optimize import least_squares
import prices as P
from prices import *
from rows import *

ROWS = load()
# name: prior, width of the prior (log)
PRIORS = {"sustained_ampere": (0.86, .05), "sustained_hopper": (0.72, .07), "power_500w": (0.80, .1), "fp8_gain": (1.6, .15), "fp8_rowwise": (1.3, .3),
          "cast_delayed": (0.5, .5), "cast_current": (1.0, .5), "k0": (200, .5), "slowdown_ampere": (0.2, .5), "slowdown_hopper": (0.4, .5), "head_exponent": (0.2, .7)}
ENGINE_PRIORS = {"products": (1.0, .05), "memory_bound": (1.15, .15), "hopper": (1.0, .2), "ampere": (0.9, .3), "overlap": (0.5, .5), "dp_overlap": (0.7, .5),
                 "network": (0.9, .2), "step_seconds": (0.02, 1.0), "cp_imbalance": (0.5, 1.0), "hop_nodes": (50e-6, 1.0)}
SPECIAL = {("nanotron", "memory_bound"): (1.4, .3), ("foundry", "memory_bound"): (1.4, .3),   # not compiled
           ("foundry", "ampere"): (0.8, .4), ("foundry", "hopper"): (0.4, .5), ("nemo24", "hopper"): (0.75, .2), ("nemo25", "hopper"): (1.0, .1),
           ("torchtitan", "hopper"): (0.6, .2), ("nanotron", "network"): (0.7, .3), ("llmc", "network"): (0.02, 1.5)}
FITTED = {"foundry": ["products", "memory_bound", "hopper", "ampere", "step_seconds"], "nemo24": ["products", "memory_bound", "hopper", "overlap"],
          "nemo25": ["products", "memory_bound", "hopper", "overlap", "step_seconds"], "torchtitan": ["products", "memory_bound", "hopper", "overlap", "cp_imbalance"],
          "nanotron": ["products", "memory_bound", "overlap", "network", "dp_overlap"], "maxtext": ["products", "memory_bound", "network"],
          "paxml": ["products", "memory_bound", "network", "step_seconds"], "fms": ["products"], "llmc": ["network", "hop_nodes"]}
# known of the engines, not fitted
KNOWN = {"foundry": dict(reduce_bytes=4, attention_backward=0.62), "torchtitan": dict(reduce_bytes=4), "nanotron": dict(grad_bytes=4, attention=dict(ampere=.9, hopper=.6, blackwell=.6)),
         "nemo24": dict(fp8_gather=True), "nemo25": dict(fp8_gather=True), "maxtext": {}, "paxml": {}, "fms": dict(memory_bound=1.5),
         "llmc": dict(dp_overlap=0.0, memory_bound=1.0, calls=148), "selene": dict(unfused_attention=True, overlap=0.0, memory_bound=1.2)}
KEYS = [("g", k) for k in PRIORS] + [(e, k) for e in FITTED for k in FITTED[e]]
prior = lambda key: PRIORS[key[1]] if key[0] == "g" else SPECIAL.get(key, ENGINE_PRIORS[key[1]])
MEAN = np.array([math.log(prior(k)[0]) for k in KEYS]); WIDTH = np.array([prior(k)[1] for k in KEYS])

def install(x):
    """Writes the numbers into prices.py; returns the engines."""
    engines = {e: {**DEFAULT, "attention": dict(DEFAULT["attention"]), **KNOWN[e]} for e in KNOWN}
    for e in engines.values(): e["attention"] = dict(e["attention"])
    g = {}
    for (owner, k), v in zip(KEYS, x):
        v = math.exp(v)
        if k in ("overlap", "dp_overlap"): v = min(v, 0.95)
        if owner == "g": g[k] = v
        elif k in ("hopper", "ampere"): engines[owner]["attention"][k] = v
        else: engines[owner][k] = v
    for name, hw in HARDWARE.items():
        if hw["arch"] == "blackwell" or "PCIe" in name: continue
        hw["power"] = g["power_500w"] if "500W" in name else 1.0
        hw["sustained"] = g["sustained_" + hw["arch"]] * hw["power"]
        hw["slowdown"] = g["slowdown_" + hw["arch"]]
    for k in ("fp8_gain", "fp8_rowwise", "cast_delayed", "cast_current", "k0", "head_exponent"): P.PHYSICS[k] = g[k]
    return engines

soft = lambda d: np.sign(d) * np.sqrt(2 * (np.sqrt(1 + d * d) - 1) + 1e-12)

def fit(rows, rounds=2, nfev=8, start=None):
    x = MEAN.copy() if start is None else start.copy()
    tol = np.array([0.05 if r.stated else 0.12 for r in rows])
    published = np.log([r.published for r in rows])
    where = {o: [i for i, r in enumerate(rows) if r.engine == o] for o in KNOWN}
    arch = {a: [i for i, r in enumerate(rows) if HARDWARE[r.hw]["arch"] == a] for a in ("ampere", "hopper")}
    fp8 = [i for i, r in enumerate(rows) if r.layout.precision != "bf16"]
    capped = [i for i, r in enumerate(rows) if "500W" in r.hw]
    every = range(len(rows))
    for _ in range(rounds):
        engines = install(x)
        lays = [resolve(r, engines[r.engine]) for r in rows]
        cache = {}
        def raw(x, which=every):
            key = x.tobytes() if which is every else None
            if key in cache: return cache[key]
            engines = install(x)
            out = np.array([math.log(price(rows[i].model, lays[i], HARDWARE[rows[i].hw], engines[rows[i].engine])[0]) for i in which])
            if key: cache.clear(); cache[key] = out
            return out
        def residual(x): return np.concatenate([soft((raw(x) - published) / tol), (x - MEAN) / WIDTH])
        def jacobian(x):                # a number of one engine moves that engine's rows only
            base = raw(x); d = (base - published) / tol
            slope = (soft(d + 1e-4) - soft(d - 1e-4)) / 2e-4
            J = np.zeros((len(rows) + len(x), len(x)))
            for j, (o, k) in enumerate(KEYS):
                which = where[o] if o != "g" else arch[k.split("_")[-1]] if k.startswith(("sustained", "slowdown")) else fp8 if k.startswith(("fp8", "cast")) else capped if k.startswith("power") else every
                y = x.copy(); y[j] += 1e-3
                if len(which): J[list(which), j] = (raw(y, list(which)) - base[list(which)]) / 1e-3 / tol[list(which)] * slope[list(which)]
                J[len(rows) + j, j] = 1 / WIDTH[j]
            return J
        x = least_squares(residual, x, jac=jacobian, max_nfev=nfev).x
    return x

if __name__ == "__main__":
    t = time.time()
    x = fit(ROWS); engines = install(x)
    for k, v in zip(KEYS, x): print(f"{k[0]}.{k[1]} = {math.exp(v):.4g} (prior {prior(k)[0]})")
    table = predictions(ROWS, engines); show(table); summary(table); selene(engines["selene"])
    np.save("x.npy", x); print("seconds", time.time() - t)
