"""The price of a training step: the functional forms (README.md says why each).

    python prices.py [profiles.toml]     # prints every published row, predicted and published, and the errors

Units: seconds, bytes, FLOP, ranks. One rank's operators are listed first (`operators`; the engine's measuring
stream gives the same list), then priced (`price`). Nothing here knows what a row published.
"""
import math, sys, tomllib
from dataclasses import dataclass, replace
from pathlib import Path

PROFILES = tomllib.loads((Path(__file__).parent / "profiles.toml").read_text())
HARDWARE = PROFILES["hardware"]
PHYSICS = PROFILES["physics"]
DEFAULT = PROFILES["engine"]["default"]
ENGINES = {k: {**DEFAULT, **v} for k, v in PROFILES["engine"].items() if k != "default"}

# ---------------------------------------------------------------- what is run

@dataclass
class Model:
    L: int; h: int; f: int; H: int; G: int; d: int; V: int; seq: int   # layers, hidden, ffn, heads, kv heads, head size
    gated: bool = True          # SwiGLU and rotary positions; else two products, GELU or squared ReLU
    learned: bool = False       # learned positions
    tied: bool = False
    qkv: int = 0                # columns of the first product where heads do not give them (latent attention)
    moe: dict = None            # topk, sent, ffn, local (experts a rank), ep, params

    def qkv_columns(self): return self.qkv or (self.H + 2 * self.G) * self.d

    def layer_params(self):
        return self.h * self.qkv_columns() + self.H * self.d * self.h + (3 if self.gated else 2) * self.h * self.f

    def params(self):
        return self.L * self.layer_params() + self.V * self.h * (1 if self.tied else 2) + (self.seq * self.h if self.learned else 0)

    def flops_token(self):
        """As most sources count: 6 N without the input table, attention over the full square."""
        return 6 * (self.L * self.layer_params() + self.V * self.h) + 12 * self.L * self.H * self.d * self.seq

@dataclass
class Layout:
    gpus: int; dp: int = 1; tp: int = 1; pp: int = 1; cp: int = 1; vp: int = 1
    mb: int = 1; gbs: int = 1   # sequences a micro-batch, a global batch
    recompute: str = "none"     # none; attention (Megatron's selective); half (torchtitan's: every 2nd product);
                                # save_qkv (JAX: keeps q, k, v, reruns attention, projection, first ffn product); full
    shard: str = "optimizer"    # none; optimizer (ZeRO-1); grads (ZeRO-2); full (ZeRO-3)
    shard_group: int = 0        # ranks a parameter is split over (0: dp * cp)
    precision: str = "bf16"     # bf16; fp8 (delayed scaling); fp8-current; fp8-rowwise
    async_tp: bool = False      # tensor-parallel collectives cut in pieces beside their products
    @property
    def m(self): return max(1, -(-self.gbs // (self.dp * self.mb)))

# ---------------------------------------------------------------- operators of one micro-batch on one rank

def forward_products(model, lay):
    """(M, N, K, times) of a layer's forward products."""
    n, t, h, f = lay.mb * model.seq / lay.cp, lay.tp, model.h, model.f
    up = 2 if model.gated else 1
    attention = [(n, model.qkv_columns() / t, h, 1), (n, h, model.H * model.d / t, 1)]
    if not model.moe: return attention + [(n, up * f / t, h, 1), (n, h, f / t, 1)]
    e = model.moe
    each = n * e["topk"] / e["local"]           # tokens an expert of this rank sees, balanced
    return attention + [(each, up * e["ffn"], h, e["local"]), (each, h, e["ffn"], e["local"])]

def operators(model, lay):
    """A layer's and the head's operators: products as (M, N, K, times), attention FLOPs, memory-bound bytes.

    Bytes are those of fused kernels, bf16: forward two norms (8h), two residual additions (12h), rotary
    positions, activation; backward about 1.5 times that. With sequence parallelism all are split by t."""
    n, t = lay.mb * model.seq / lay.cp, lay.tp
    h, f = model.h, model.f
    fwd = forward_products(model, lay)
    bwd = [x for M, N, K, times in fwd for x in ((M, K, N, times), (K, N, M, times))]
    again = {"none": [], "attention": [], "half": [(M, N, K, times / 2) for M, N, K, times in fwd],
             "save_qkv": fwd[1:3], "full": fwd}[lay.recompute]
    active = f if not model.moe else model.moe["topk"] * model.moe["ffn"] * t
    moved = 0 if not model.moe else 8 * h * model.moe["topk"] * t                # permute, unpermute
    rope = 4 * (model.H + model.G) * model.d if model.gated or not model.learned else 0
    bytes_f = n / t * (20 * h + rope + (6 if model.gated else 4) * active + moved)
    bytes_b = n / t * (30 * h + rope + (10 if model.gated else 6) * active + moved)
    bytes_again = {"none": 0, "attention": 0, "half": 0.7, "save_qkv": 0.7, "full": 1}[lay.recompute] * bytes_f
    casts = 0.0                 # fp8: input and output gradient of each product read (2) and written twice (1 + 1)
    if lay.precision != "bf16":
        casts = sum(4 * (M * K + M * N) * times for M, N, K, times in fwd) + sum(4 * M * K * times for M, N, K, times in again)
    window = 0.5 if model.moe and model.moe.get("window") else 1.0               # every second layer looks 128 back
    return dict(
        n=n, fwd=fwd, bwd=bwd, again=again, bytes_f=bytes_f, bytes_b=bytes_b + bytes_again, casts=casts,
        attention=2.0 * lay.mb * model.seq ** 2 * model.H * model.d / (t * lay.cp) * window,      # causal, forward
        attention_again=1 if lay.recompute in ("attention", "full", "save_qkv") else 0,
        head=[(n, model.V / t, h, 1), (n, h, model.V / t, 1), (h, model.V / t, n, 1)],
        head_bytes=16.0 * n * model.V / t + 12.0 * n * h, embedding_bytes=14.0 * n * h / t)

# ---------------------------------------------------------------- prices of operators

def product_rate(hw, dtype, engine):
    """Sustained FLOP/s of a product with long K under the GPU's power cap."""
    gain = {"bf16": 1.0, "fp8": PHYSICS["fp8_gain"], "fp8-current": PHYSICS["fp8_gain"], "fp8-rowwise": PHYSICS["fp8_rowwise"]}[dtype]
    return hw["bf16"] * hw["sustained"] * gain * engine["products"]

def product_seconds(M, N, K, dtype, hw, engine):
    """Tiles over SMs in waves, K + k0 steps a tile; a smooth maximum with the traffic to HBM; a launch."""
    k0 = PHYSICS["k0"] * (1.0 if dtype == "bf16" else PHYSICS["fp8_gain"])       # prologue and epilogue do not speed up
    work = math.inf
    for tile_m, tile_n, rate in ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.9)):
        waves = math.ceil(M / tile_m) * math.ceil(N / tile_n) / hw["sms"]
        waves += PHYSICS["quantise"] * (math.ceil(waves) - waves)
        work = min(work, waves * hw["sms"] * 2 * tile_m * tile_n * (K + k0) / rate)
    size = 2 if dtype == "bf16" else 1
    compute = work / product_rate(hw, dtype, engine)
    traffic = (size * (M * K + N * K) + 2 * M * N) / (hw["hbm"] * PHYSICS["eta_hbm"])
    return (compute ** 4 + traffic ** 4) ** 0.25 + PHYSICS["launch"]

def products_seconds(ops, dtype, hw, engine):
    return sum(times * product_seconds(M, N, K, dtype, hw, engine) for M, N, K, times in ops)

def attention_seconds(model, lay, flops, hw, engine):
    """Forward and backward (2.5 times the FLOPs). Rate rises as s / (s + s0); smaller heads are a little slower."""
    if engine.get("unfused_attention"):         # before flash attention: full square, passes over the scores
        rate = product_rate(hw, "bf16", engine) * 0.7
        scores = lay.mb * model.seq ** 2 * model.H / (lay.tp * lay.cp) / (hw["hbm"] * PHYSICS["eta_hbm"] / engine["memory_bound"])
        return 2 * flops / rate + 13 * scores, 4 * flops / rate + 17 * scores
    s = model.seq / (2 * lay.cp) if lay.cp > 1 else model.seq                    # what one step of the ring sees
    rate = hw["bf16"] * hw["power"] ** 0.5 * engine["attention"][hw["arch"]] * min(1.0, model.d / 128) ** PHYSICS["head_exponent"]
    uneven = 1 + engine["cp_imbalance"] * (lay.cp - 1) / lay.cp                  # contiguous chunks: the last rank has (2c-1)/c
    fwd = uneven * flops / (rate * PHYSICS["attention_forward"] * s / (s + PHYSICS["s0_forward"]))
    bwd = uneven * 2.5 * flops / (rate * engine["attention_backward"] * PHYSICS["attention_backward"] * s / (s + PHYSICS["s0_backward"]))
    return fwd, bwd

def ring(hw, group, inside, engine):
    """Bus bandwidth and latency of a ring of `group` ranks, `inside` of them in each NVLink domain: it enters a
    domain over the NICs of its own ranks only (with tensor parallelism of 8, one)."""
    inside = max(1, min(inside, group))
    nodes = -(-group // inside)
    latency = PHYSICS["call"] + (group - nodes) * PHYSICS["hop_inside"] + (nodes - 1) * engine["hop_nodes"]
    adapters = inside * hw["nic"] * engine["network"]
    return (hw["nvlink"] if nodes == 1 else min(hw["nvlink"], adapters) if inside > 1 else adapters), latency

def gather_seconds(total, hw, group, inside, engine, calls=1):
    """All-gather or reduce-scatter of `total` bytes (the whole) in `calls` pieces."""
    if group <= 1: return 0.0
    bandwidth, latency = ring(hw, group, inside, engine)
    return calls * latency + total * (group - 1) / group / bandwidth

def reduce_seconds(total, hw, group, inside, engine, bucket):
    """All-reduce of `total` bytes in buckets, each by the ring or the tree, whichever NCCL would find quicker."""
    bandwidth, latency = ring(hw, group, inside, engine)
    inside = max(1, min(inside, group))
    tree = PHYSICS["call"] + 2 * ((inside - 1) * 4e-6 + math.log2(max(1, group / inside)) * engine["hop_nodes"])
    return math.ceil(total / bucket) * min(2 * latency, tree) + 2 * total * (group - 1) / group / bandwidth

# ---------------------------------------------------------------- price of a layer, then of a step

def layer_seconds(model, lay, o, hw, engine):
    """Forward and backward of one layer and one micro-batch, by part."""
    t, c, dtype = lay.tp, lay.cp, lay.precision
    hbm = hw["hbm"] * PHYSICS["eta_hbm"]
    cast = o["casts"] / hbm * PHYSICS["cast_delayed" if dtype == "fp8" else "cast_current"]
    af, ab = attention_seconds(model, lay, o["attention"], hw, engine)
    f = dict(products=products_seconds(o["fwd"], dtype, hw, engine), attention=af, memory=o["bytes_f"] / hbm * engine["memory_bound"] + 0.4 * cast)
    b = dict(products=products_seconds(o["bwd"] + o["again"], dtype, hw, engine), attention=ab + o["attention_again"] * af,
             memory=o["bytes_b"] / hbm * engine["memory_bound"] + 0.6 * cast)
    f["tp"] = b["tp"] = f["cp"] = b["cp"] = 0.0
    if t > 1:                                   # sequence parallel: 2 gathers + 2 scatters forward; the same + 2 gathers backward
        hidden = 0.0 if t > hw["domain"] else max(engine["overlap"], PHYSICS["async_tp"]) if lay.async_tp else engine["overlap"]
        one = gather_seconds(2.0 * o["n"] * model.h, hw, t, hw["domain"], engine) * (1 - hidden)
        f["tp"] = 4 * one
        b["tp"] = (6 + {"half": 2, "save_qkv": 2, "full": 4}.get(lay.recompute, 0)) * one
    if c > 1:                                   # keys and values turn round the ring beside attention
        bandwidth = hw["nvlink"] if c * t <= hw["domain"] else hw["nic"] * engine["network"]
        turn = (c - 1) * (4.0 * o["n"] * model.G * model.d / t / bandwidth + 20e-6)
        f["cp"] = max(0.0, turn - 0.8 * af) + 0.15 * turn
        b["cp"] = max(0.0, 2 * turn - 0.8 * ab) + 0.3 * turn
    if model.moe:                               # experts' all-to-all, 30 % hidden
        bandwidth = 0.8 * hw["nvlink"] if model.moe["ep"] * t <= hw["domain"] else hw["nic"]
        f["ep"] = 0.7 * 2 * 2.0 * o["n"] / t * model.h * model.moe["sent"] / bandwidth
        b["ep"] = 2 * f["ep"]
    return f, b

def local_params(model, lay):
    """Parameters of the fullest rank before any splitting over data ranks."""
    if model.moe: return model.moe["params"] / lay.pp / model.moe["ep"]
    tables = 1 if lay.pp > 1 or model.tied else 2
    return (model.L / lay.pp * model.layer_params() + tables * model.V * model.h) / lay.tp

def data_parallel(model, lay, n_loc, compute, forward, hw, engine):
    """(seconds more a micro-batch, seconds more a step) of the data group's collectives."""
    d, units = lay.dp * lay.cp, model.L / lay.pp
    group = lay.shard_group or d
    inside = min(hw["domain"] // lay.tp, d) if lay.tp <= hw["domain"] else 1
    bandwidth, _ = ring(hw, group, inside, engine)
    slow = hw["slowdown"] * bandwidth / hw["nvlink"]        # a slow ring takes few SMs and little of HBM
    if lay.shard == "full" and lay.pp == 1:     # gathered forward and backward, reduced, for each micro-batch, unit by unit
        one = units * gather_seconds(2.0 * n_loc / units, hw, group, inside, engine)
        gather = one * (0.6 if lay.precision == "fp8-current" else 1.0)          # gathered in fp8
        reduce = one * engine["reduce_bytes"] / 2
        comm = 2 * gather + reduce
        beside = max(compute + slow * min(comm, compute), comm) - compute
        replicas = gather_seconds(2.0 * n_loc / group, hw, d // group, 1, engine) if group < d else 0.0
        return beside + (gather + reduce) / units, replicas  # first gather, last reduction are never hidden
    if d == 1: return 0.0, 0.0
    if lay.shard == "none":                     # all-reduce in buckets beside the last micro-batch's backward
        alone = reduce_seconds(engine["grad_bytes"] * n_loc, hw, d, inside, engine, PHYSICS["bucket"])
        hidden = engine["dp_overlap"] * min(alone, compute - forward)
        return 0.0, alone - hidden + slow * hidden
    # reduced beside the last micro-batch's backward, gathered beside the first one's forward
    calls = engine.get("calls") or math.ceil(n_loc / max(40e6, 1e6 * d))         # Megatron's bucket, parameters
    gathered = 1 if engine.get("fp8_gather") and lay.precision != "bf16" else 2
    seconds = 0.0
    for size, window in ((engine["grad_bytes"], compute - forward), (gathered, forward)):
        alone = gather_seconds(size * n_loc, hw, d, inside, engine, calls)
        hidden = engine["dp_overlap"] * min(alone, window)
        seconds += alone - hidden + slow * hidden
    return 0.0, seconds

def price(model, lay, hw, engine):
    """Tokens/s a GPU, and the step's seconds by part."""
    t, p, v, m, d = lay.tp, lay.pp, lay.vp, lay.m, lay.dp * lay.cp
    o = operators(model, lay)
    hbm = hw["hbm"] * PHYSICS["eta_hbm"]
    f, b = layer_seconds(model, lay, o, hw, engine)
    layer_f, layer = sum(f.values()), sum(f.values()) + sum(b.values())
    head = products_seconds(o["head"], "bf16", hw, engine) + o["head_bytes"] / hbm * engine["memory_bound"]
    embedding = o["embedding_bytes"] / hbm * engine["memory_bound"]
    # the slowest stage; embedding and head count as layers where layers alone do not divide and with them do
    mean = (model.L * layer + head + embedding) / p
    if p > 1 and model.L % (p * v) and (model.L + 2) % (p * v) == 0:
        per = (model.L + 2) // p
        slowest, forward = max(per * layer, (per - 1) * layer + head), per * layer_f
    else:
        per = -(-model.L // p)
        slowest, forward = per * layer + head + (embedding if p == 1 else 0), per * layer_f + head / 3
    # gradients accumulate in fp32; weights are cast to fp8 once a step (each micro-batch when gathered for each)
    n_loc = local_params(model, lay)
    group = lay.shard_group or d
    accumulate = (8.0 * n_loc / group if lay.shard == "full" else 6.0 * n_loc) / hbm * engine["memory_bound"]
    cast = 4.0 * n_loc / hbm * engine["memory_bound"] if lay.precision != "bf16" else 0.0
    if lay.shard == "full" and lay.precision == "fp8-current": cast *= m
    compute = slowest + accumulate
    dp_micro, dp_step = data_parallel(model, lay, n_loc, compute, forward, hw, engine)
    # pipeline: fill and drain (p - 1) / v micro-batches of the mean stage; sends exposed, mostly hidden when interleaved
    bubble = p2p = 0.0
    if p > 1:
        bandwidth, latency = (hw["nvlink"], 10e-6) if t * d * p <= hw["domain"] else (hw["nic"] * max(engine["network"], 0.3), 20e-6)
        p2p = 2 * v * (2.0 * o["n"] * model.h / t / bandwidth + latency) * (1.0 if v == 1 else 1 - PHYSICS["p2p_overlap"])
        bubble = (p - 1) / v * (mean + p2p / v)
    # optimizer: 30 bytes of state a parameter, 4 of gradient for the norm
    split = {"full": group, "optimizer": d, "grads": d, "none": 1}[lay.shard]
    optimizer = (30.0 * n_loc / split + 4.0 * n_loc / (group if lay.shard == "full" else 1)) / hbm
    step = m * (compute + p2p + dp_micro) + bubble + dp_step + optimizer + cast + engine["step_seconds"]
    tokens = m * lay.mb * lay.dp * model.seq / lay.gpus
    mean_layers = model.L / p * m
    parts = {k: mean_layers * (f[k] + b[k]) for k in f}
    parts |= dict(head=m * head / p, uneven=m * (slowest - mean), bubble=bubble, p2p=m * p2p, dp=m * dp_micro + dp_step,
                  accumulate=m * accumulate + cast, optimizer=optimizer, constant=engine["step_seconds"])
    return tokens / step, step, parts

if __name__ == "__main__":
    import rows
    rows.main()
