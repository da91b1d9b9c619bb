"""Leave out one model of every engine at once (a fold each), or one source of every engine. Every fit starts from the
priors. Leaving a model of every engine out together is harder than one at a time, and takes 9 fits, not 40."""
import collections
from fit import *

def folds(key):
    """Row lists: fold k has the k-th group of each engine; single groups are spread over the folds."""
    groups = collections.defaultdict(dict)
    for r in ROWS: groups[r.engine].setdefault(key(r), []).append(r)
    n = max(len(g) for g in groups.values())
    out, at = [[] for _ in range(n)], 0
    for engine, g in sorted(groups.items()):
        for rows in g.values():
            out[at % n] += rows; at += 1
    return out

def run(kind, key):
    err = {}
    for i, out in enumerate(folds(key)):
        left = {r.i for r in out}
        engines = install(fit([r for r in ROWS if r.i not in left], rounds=1, nfev=7))
        for t in predictions(out, engines):
            err[t[0].i] = t[3]
        print(f"{kind} fold {i}: " + "; ".join(f"{e} {k} " + " ".join(f"{r.i}:{100*err[r.i]:+.0f}" for r in out if (r.engine, key(r)) == (e, k))
                                                for e, k in sorted({(r.engine, key(r)) for r in out})), flush=True)
        json.dump(err, open(f"loo_{kind}.json", "w"))
    for name, keep in (("stated", lambda r: r.stated), ("elsewhere", lambda r: not r.stated), *((e, lambda r, e=e: r.engine == e) for e in KNOWN)):
        v = [abs(err[r.i]) for r in ROWS if keep(r)]
        if v: print(f"{kind} TOTAL {name:10} {100*sum(v)/len(v):5.2f}% ({len(v)})", flush=True)

if __name__ == "__main__":
    if sys.argv[1] == "source": run("source", lambda r: r.src.split(" (")[0].split(";")[0][:60])
    else: run("model", lambda r: r.raw["model"].split("-proxy")[0])
