"""The published rows as models and layouts, with what a user of each engine would fill in where a source is silent."""
import csv, itertools, json, re
from prices import *

CSV = Path(__file__).parent / "throughput.csv"

@dataclass
class Row:
    i: int; src: str; engine: str; hw: str; model: Model; layout: Layout; published: float; stated: bool; note: str; raw: dict

def hardware_of(gpu):
    if gpu.startswith("A100"): return "A100-40G" if "40G" in gpu else "A100"
    if "500W" in gpu: return "H100-500W"
    if "PCIe" in gpu: return "H100-PCIe"
    return next((x for x in ("GB200", "B200", "H200") if gpu.startswith(x)), "H100")

LLAMA = {"Llama-3-1.8B": (24, 2048, 7168, 16, 8, 128, 128256), "Llama-2-34B": (48, 8192, 22016, 64, 8, 128, 32000)}
PLAIN = ("GPT", "MPT", "Nemotron")            # two-product feed-forward; others are gated

def engine_of(src):
    for word, name in (("torchtitan", "torchtitan"), ("pytorch.org", "torchtitan"), ("llm-foundry", "foundry"), ("nanotron", "nanotron"),
                       ("tzafon", "nanotron"), ("llm.c", "llmc"), ("maxtext", "maxtext"), ("paxml", "paxml"), ("fms-fsdp", "fms")):
        if word in src: return name
    return "nemo24" if "24.0" in src or "Megatron-LM README" in src else "nemo25"

def num(x, d=None):
    try: return type(d)(float(x)) if d is not None else float(x)
    except ValueError: return d

def load():
    rows = []
    for i, r in enumerate(csv.DictReader(open(CSV))):
        eng, name, note = engine_of(r["source"]), r["model"], r["notes"]
        if name in LLAMA and not r["layers"]:
            L, h, f, H, G, d, V = LLAMA[name]
        elif name == "GPT-OSS-120B": L, h, f, H, G, d, V = 36, 2880, 4 * 2880, 64, 8, 64, 201088
        elif name == "DeepSeek-V3": L, h, f, H, G, d, V = 61, 7168, 9 * 2048, 128, 128, 128, 129280
        else:
            L, h, f, H, G, V = (int(r[k]) for k in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")); d = h // H
        seq = num(r["seq"], 8192)
        gated = not name.startswith(PLAIN)
        tied = name.startswith(("MPT", "GPT-2", "GPT3")) or (eng == "nanotron" and f < 10000) or name.startswith("SmolLM3") or name.startswith("GPT-177")
        m = Model(L, h, f, H, G, d, V, seq, gated=gated, learned=name.startswith(("MPT", "GPT")) and "OSS" not in name, tied=tied)
        if name == "GPT-OSS-120B": m.moe = dict(topk=4, sent=4, ffn=2880, local=16, ep=8, params=116.8e9, window=True)
        if name == "DeepSeek-V3": m.moe = dict(topk=9, sent=4, ffn=2048, local=4, ep=64, params=671e9); m.qkv = 9765   # sent: once to each of 4 nodes
        # layout
        tp, pp, cp = num(r["tp"], 0), num(r["pp"], 0), num(r["cp"], 0)
        n, mb, gbs = num(r["n_gpus"], 0), num(r["micro_batch"], 0), num(r["global_batch_seqs"], 0)
        prec = r["precision"] or "bf16"
        prec = {"fp8": "fp8", "fp8-current": "fp8-current", "fp8-unspecified": "fp8-current", "fp8-tensorwise": "fp8-current",
                "fp8-rowwise": "fp8-rowwise"}.get(prec, "bf16")
        if eng in ("torchtitan",) and prec == "fp8": prec = "fp8-current"
        vp = re.search(r"VP=(\d+)", note)
        vp = int(vp.group(1)) if vp else 1
        rc = r["recompute"].split(" ")[0]
        rc = {"": "", "selective": "half" if eng == "torchtitan" else "attention"}.get(rc, rc)
        shard = "optimizer"
        if eng in ("torchtitan", "foundry", "fms", "maxtext", "paxml"): shard = "full"
        if "SHARD_GRAD_OP" in note: shard = "grads"
        if "FSDP=8" in note: shard = "full"
        if "ZeRO-0" in note: shard = "none"
        stated = bool(n and tp and pp and cp and mb and gbs and r["dp"])
        sg = 0
        if "maxtext" in r["source"] and n >= 512: sg = 128
        lay = Layout(n or 256, dp=max(1, (n or 256) // (max(1, tp) * max(1, pp) * max(1, cp))), tp=max(1, tp), pp=max(1, pp), cp=max(1, cp), vp=vp, mb=mb,
                     gbs=gbs, recompute=rc, shard=shard, shard_group=sg, precision=prec,
                     async_tp="async TP" in note or "AsyncTP" in note)
        if eng == 'torchtitan' and lay.pp > 1: lay.mb = 1       # the local batch is cut in micro-batches of one sequence
        # what was published, in tokens/s/GPU
        pub, tf, mfu = num(r["tokens_per_s_per_gpu"]), num(r["tflops_per_gpu"]), num(r["mfu_pct"])
        if pub is None:
            if tf is None: tf = mfu / 100 * 989
            pub = tf * 1e12 / m.flops_token()
        rows.append(Row(i + 1, r["source"], eng, hardware_of(r["gpu"]), m, lay, pub, stated, note, r))
    return rows

# ---------------------------------------------------------------- memory, to leave out layouts that do not fit
def memory(model, lay, engine):
    t, p, d = lay.tp, lay.pp, lay.dp * lay.cp
    n_loc = model.L / p * model.layer_params() / t + model.V * model.h / t * (1 if p > 1 or model.tied else 2)
    if lay.shard == "full": state = 16.0 * n_loc / (lay.shard_group or d) + 3 * 2.0 * (model.layer_params() + model.V * model.h) / t
    elif lay.shard == "none": state = 20.0 * n_loc
    else: state = 4.0 * n_loc + 12.0 * n_loc / d           # gradients in bf16, as the recipes set
    tok = lay.mb * model.seq / lay.cp / t
    h, f, dq, dk = model.h, model.f, model.H * model.d, model.G * model.d
    whole = (8 * h + 4 * dq + 4 * dk + 6 * f) if model.gated else (8 * h + 4 * dq + 4 * dk + 4 * f)
    if lay.precision.startswith("fp8"): whole *= 0.75
    act = {"none": whole, "attention": whole, "half": 0.55 * whole, "save_qkv": 2 * h + 2 * dq + 4 * dk, "full": 2 * h}[lay.recompute]
    inflight = model.L if p == 1 else model.L / p * min(lay.m, p * (1 + (p - 1) / (p * lay.vp)))
    logits = tok * model.V * (6 if p == 1 else 0)
    return state + tok * act * inflight + logits + 4e9 + (tok * whole if lay.recompute != "none" else 0)

CHOICES = {"nemo24": ("none", "full"), "nemo25": ("none", "full"), "torchtitan": ("half", "full"), "foundry": ("none", "full"), "nanotron": ("none", "full"),
           "llmc": ("none",), "maxtext": ("none", "save_qkv", "full"), "paxml": ("none", "save_qkv", "full"), "fms": ("none", "full"), "selene": ("none", "attention", "full")}

def candidates(row):
    """Every layout the row leaves open."""
    r, lay = row.raw, row.layout
    gpus = [lay.gpus]
    rcs = [lay.recompute] if lay.recompute else CHOICES[row.engine]
    out = []
    tps = [lay.tp] if r["tp"] else [x for x in (1, 2, 4, 8) if row.engine.startswith("nemo") or x == 1]
    pps = [lay.pp] if r["pp"] else [x for x in (1, 2, 4, 8, 16) if row.engine.startswith("nemo") or x == 1]
    cps = [lay.cp]
    vps = [lay.vp] if "VP" in row.note or not row.engine.startswith('nemo') or row.layout.pp == 1 and r["pp"] else None
    mbs = [lay.mb] if r["micro_batch"] else (1, 2, 3, 4, 6, 8, 12)
    for n, tp, pp, cp, rc, mb in itertools.product(gpus, tps, pps, cps, rcs, mbs):
        if n % (tp * pp * cp): continue
        dp = n // (tp * pp * cp)
        if r["global_batch_seqs"] and lay.gbs % (dp * mb) and not (row.engine == "foundry"): continue
        gbs = lay.gbs or dp * mb * (1 if not row.engine.startswith("nemo") else 32)
        if vps: vs = vps
        elif pp == 1: vs = (1,)
        else: vs = [v for v in range(1, 17) if row.model.L % (pp * v) == 0 or (row.model.L + 2) % (pp * v) == 0] or [1]
        for v in vs:
            out.append(replace(lay, gpus=n, dp=dp, tp=tp, pp=pp, cp=cp, vp=v, mb=mb, gbs=gbs, recompute=rc))
    return out

def resolve(row, engine):
    """The fastest layout that fits; the one that needs least memory where none does."""
    cs = candidates(row)
    if len(cs) == 1: return cs[0]
    hw = HARDWARE[row.hw]
    sized = [(memory(row.model, c, row.engine), c) for c in cs]
    fits = [c for b, c in sized if b <= hw["gib"] * 2**30 * 0.97]
    if not fits: return min(sized, key=lambda x: x[0])[1]
    return max(fits, key=lambda c: price(row.model, c, hw, engine)[0])

# ---------------------------------------------------------------- the table

def predictions(rows, engines):
    out = []
    for r in rows:
        lay = resolve(r, engines[r.engine])
        rate, step, parts = price(r.model, lay, HARDWARE[r.hw], engines[r.engine])
        out.append((r, lay, rate, rate / r.published - 1, step, parts))
    return out

def mae(table, keep=lambda r: True):
    e = [abs(x[3]) for x in table if keep(x[0])]
    return 100 * sum(e) / max(1, len(e)), len(e)

HELD = {k: json.loads((Path(__file__).parent / f"loo_{k}.json").read_text()) for k in ("model", "source") if (Path(__file__).parent / f"loo_{k}.json").exists()}

def show(table, file=None):
    print(f"{'row':>3} {'engine':10} {'model':20} {'gpu':9} {'n':>4}  t p  c v  mb  m     seq precision   recompute S   predicted published  error  left out: model source  share of the step, %", file=file)
    for r, lay, rate, err, step, parts in table:
        share = " ".join(f"{k} {100*x/step:.0f}" for k, x in parts.items() if abs(x) / step > 0.005)
        print(f"{r.i:3d} {r.engine:10} {r.raw['model'][:20]:20} {r.hw:9} {lay.gpus:4d} {lay.tp:2d} {lay.pp:1d} {lay.cp:2d} {lay.vp:<2d} {lay.mb:3d} {lay.m:3d} {r.model.seq:7d} "
              f"{lay.precision:11} {lay.recompute:9} {'S' if r.stated else '-'} {rate:11.1f} {r.published:9.1f} {100*err:+6.1f}%  " + " ".join(f"{100*h[str(r.i)]:+6.0f}%" for h in HELD.values()) + f"  {share}", file=file)

def summary(table, file=None):
    print("mean absolute error: layout stated %.1f%% (%d rows), elsewhere %.1f%% (%d rows)" % (*mae(table, lambda r: r.stated), *mae(table, lambda r: not r.stated)), file=file)
    for e in ENGINES:
        a, n = mae(table, lambda r: r.engine == e)
        if n: print(f"  {e:10} {a:5.1f}% ({n})", file=file)

# Korthikanti et al. 2022 (arXiv 2205.05198): seconds a batch with full recompute; selective + sequence parallel
SELENE = [("22B", 6144, 64, 48, 1, 1, 8, 4, 4, 1.42, 1.10), ("175B", 12288, 96, 96, 8, 3, 64, 64, 1, 18.13, 13.75),
          ("530B", 20480, 128, 105, 35, 3, 280, 280, 1, 49.05, 37.83), ("1T", 25600, 160, 128, 64, 1, 512, 512, 1, 94.42, 71.49),
          ("1T, v=2", 25600, 160, 128, 64, 2, 512, 512, 1, 94.42, 71.49)]

def selene(engine, file=None):
    for name, h, H, L, p, v, n, gbs, mb, full, selective in SELENE:
        m = Model(L, h, 4 * h, H, H, h // H, 51200, 2048, gated=False, learned=True, tied=True)
        for recompute, published in (("full", full), ("attention", selective)):
            rate, step, parts = price(m, Layout(n, tp=8, pp=p, vp=v, mb=mb, gbs=gbs, recompute=recompute, shard="none"), HARDWARE["A100"], engine)
            share = " ".join(f"{k} {100*x/step:.0f}" for k, x in parts.items() if abs(x) / step > 0.005)
            print(f"  A100 {name:8} {recompute:9} {step:7.2f} s  published {published:6.2f} s  {100*(step/published-1):+5.1f}%  {share}", file=file)

def main():
    table = predictions(load(), ENGINES)
    show(table); summary(table)
    for name, h in HELD.items():
        for what, keep in (("layout stated", lambda r: r.stated), ("layout stated, without llm.c", lambda r: r.stated and r.engine != "llmc"),
                           ("elsewhere", lambda r: not r.stated), ("elsewhere, dense models", lambda r: not r.stated and not r.model.moe)):
            e = [abs(h[str(x[0].i)]) for x in table if keep(x[0])]
            print(f"  {name} left out, {what}: {100*sum(e)/len(e):.1f}% ({len(e)} rows)")
    groups = {}
    for x in table: groups.setdefault((x[0].engine, x[0].raw["model"]), []).append(abs(x[3]))
    print(f"  mean over the {len(groups)} (engine, model) pairs, each once: {100*sum(sum(e)/len(e) for e in groups.values())/len(groups):.1f}%")
    a, n = mae(table, lambda r: not r.stated and not r.model.moe); print(f"  elsewhere, dense models: {a:.1f}% ({n} rows)")
    print("Korthikanti's batches (not fitted):"); selene(ENGINES["selene"])
