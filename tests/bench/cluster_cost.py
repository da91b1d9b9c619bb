#!/usr/bin/env python3
"""Predicts the time of one micro-batch of training on many hosts, line by line, and prints a table.

usage: cluster_cost.py [--engine NAME]

Columns are runs and rows are parts of the time. step() follows compute, all-gathers and reductions through an
optimizer step, in the order in which model/transformer.cpp and dist/param_store.cpp enqueue them. The time of each
call follows from its bytes and ranks. An Engine holds what an implementation may change.

All results are predictions. No run has used several GPUs yet, so nothing here was measured. Compute may be off by 8 %
and communication by 30 %. Further uncertainties:

  - Network.proxy, the time of NCCL's proxy for each peer of an all-to-all across hosts. It decides the reductions of
    1,024 ranks.
  - Waits for free multiprocessors, which the model leaves out. A kernel of a reduction that starts beside a matmul
    waits until blocks of the matmul end. With these waits a run may take up to twice the time.
  - Copy engines, which are assumed to move all that stays inside an NVLink domain.
  - Partly empty waves of smaller matmuls, which the model leaves out and `lockstep plan` has.
  - One queue for gathers and reductions (Engine.launch_order): they share the NIC, but their latencies may overlap.

Sources are files of this repository (published/ is in tests/bench), data sheets and NCCL. A change of Gpu or Network
is a commit of its own that names its source.
"""

import argparse
import collections
import dataclasses
import math

BF16, FP32 = 2, 4  # bytes of an element


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Gpu is an H100 SXM at 700 W. Rates are those inside a step."""
    peak_flops: float = 989.4e12            # FLOP/s, dense bf16 (data sheet)
    matmul_flops: float = 680e12            # FLOP/s; assumed, 650 to 730 on an H200
    narrow_matmul_flops: float = 640e12     # FLOP/s, matmuls that tensor ranks divide; assumed, for partial waves
    attention_flops: float = 640e12         # FLOP/s, cuDNN forward at T 8192 (docs/planning.md: 644 on an H200)
    attention_backward_flops: float = 474e12  # FLOP/s; assumed, deterministic (docs/planning.md has 541)
    memory: float = 2.75e12                 # bytes/s, memory-bound kernels; assumed, 0.82 of 3.35e12 (data sheet)
    launch: float = 5e-6                    # s, start of a kernel that depends on the one before; assumed
    layer_gaps: float = 4e-3 / 32           # s without a kernel in forward and backward of a layer; assumed
    multiprocessors: int = 132              # (data sheet)


@dataclasses.dataclass(frozen=True)
class Network:
    """Network has NVLink inside a host and a NIC of 400 Gbit/s a GPU. NCCL is 2.30.7, src/graph/tuning.cc."""
    host_ranks: int = 8                     # GPUs of a host (configs/clusters/dgx_h100.toml)
    nvlink: float = 370e9                   # bytes/s of a GPU: bus bandwidth of nccl-tests (core/system/hardware.cpp)
    kernel_share: float = 0.8               # of nvlink, for all-to-all by kernels (launch/plan/time_model.cpp)
    nic: float = 0.9 * 46e9                 # bytes/s of a GPU: share reached x payload (core/system/hardware.cpp)
    call: float = 8.4e-6                    # s, base of a call (NCCL: ring, simple)
    hop: float = 3.4e-6                     # s, hop or peer over NVLink (NCCL: ring, simple)
    hop_across: float = 14e-6               # s, hop across hosts (NCCL: ring, simple)
    proxy: float = 2e-6                     # s for each peer across hosts of an all-to-all; assumed
    nvlink_channels: int = 16               # multiprocessors held by a call of kernels over NVLink; assumed
    #                                         (launch/plan/time_model.cpp, kWaiting)
    nic_channels: int = 4                   # multiprocessors held for a NIC by a call across hosts; derived (NCCL,
    #                                         search.cc and connect.cc: a channel is found and duplicated twice)


@dataclasses.dataclass(frozen=True)
class Model:
    """Model is a Llama (configs/llama3_8b.toml, llama3_70b.toml). It leaves out norms."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp_width: int
    vocabulary: int = 128256
    head_size: int = 128

    @property
    def layer_weights(self):
        return self.width * (2 * (self.heads + self.kv_heads) * self.head_size + 3 * self.mlp_width)

    @property
    def end_weights(self):
        """Weights of the embedding, and of the head."""
        return self.vocabulary * self.width

    def token_flops(self, tokens):
        """Model FLOPs of a token of a causal sequence (docs/performance.md)."""
        weights = self.layers * self.layer_weights + self.end_weights
        return 6 * weights + 6 * self.layers * self.heads * self.head_size * tokens


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout has the sizes of the mesh. Tensor ranks are neighbors; ranks of shard come next."""
    shard: int
    replicate: int = 1
    tensor: int = 1
    micro_batches: int = 1           # of a step
    tokens: int = 8192               # of a micro-batch, which is one sequence
    recomputes_blocks: bool = False  # recompute = "block"; else "cheap": norms and SwiGLU
    whole_gradients: bool = False    # sharding = "weights": gradients are reduced in the last micro-batch only
    whole_weights: bool = False      # sharding = "gradients": weights are gathered once a step, which has one micro-batch


@dataclasses.dataclass(frozen=True)
class Engine:
    """Engine holds what an implementation may change. The defaults are those of commit b2ef912."""
    ring_bytes: int = 64 << 20             # memory of a chunk of a reduction (dist/reduction.h)
    across_bytes: int = FP32               # of an element that a reduction sends across hosts (dist/reduction.cpp)
    rounds_sums: bool = False              # layout.reduce = "bf16": 2 bytes where nothing was summed, and for replicas
    ring_share: int = 0                    # the ring has 1 / ring_share of what the largest unit needs at once; 0: no
    stages_overlap: bool = False           # a chunk crosses hosts while the next one is summed inside a host
    launch_order: bool = True              # NCCL_LAUNCH_ORDER_IMPLICIT: one queue for gathers, reductions, tensor calls
    reduces_block_later: bool = False      # tensor calls of the next block do not wait for a reduction
    reduces_each_micro_batch: bool = True  # sharding = "full" (dist/param_store.cpp); else only the last one
    sets_gradients: bool = False           # the first matmul of a sum sets it; else gradients begin at zero
    gathers_embedding_early: bool = False  # in the backward before, ahead of its reduction; else in the next forward
    gathers_beside_optimizer: bool = False  # the first gathers of a step begin while other units are updated
    tensor_beside: bool = False            # tensor calls of backward run beside products (model/linear.cpp)
    tensor_copies: bool = False            # copy engines make them (dist/nccl_world.cpp)
    tensor_chunks: int = 1                 # of the tokens: a chunk's calls run beside others' matmuls (model/linear.cpp)
    most_channels: int = 16                # of a call across hosts (NCCL's automatic number with 8 NICs)
    head_chunk_bytes: int = 1 << 30        # logits of a chunk of the head (train/step/training.cpp)
    optimizer_bytes: int = 38              # an element: AdamW 30, norm of gradients 4, setting them to 0 4


# b2ef912: that commit. chunks: few large chunks that overlap, and the embedding is gathered early.
# now: all that the engine does. bf16: the same with layout.reduce = "bf16".
CHUNKS = Engine(ring_share=4, stages_overlap=True, gathers_embedding_early=True)
NOW = dataclasses.replace(CHUNKS, reduces_block_later=True, sets_gradients=True, gathers_beside_optimizer=True,
                          tensor_beside=True, tensor_copies=True, tensor_chunks=2)
ENGINES = {"b2ef912": Engine(), "chunks": CHUNKS, "now": NOW, "bf16": dataclasses.replace(NOW, rounds_sums=True)}


@dataclasses.dataclass(frozen=True)
class Call:
    """Call has the seconds of a collective with the kernels around it. Calls that follow each other are added."""
    seconds: float = 0.0
    begun: float = 0.0   # until its last collective has begun
    held: float = 0.0    # multiprocessors that NCCL holds x seconds
    memory: float = 0.0  # of memory-bound kernels
    wire: float = 0.0    # of bytes on the NIC

    def __add__(self, then):
        begun = self.seconds + then.begun if then.begun else self.begun
        return Call(self.seconds + then.seconds, begun, self.held + then.held, self.memory + then.memory,
                    self.wire + then.wire)


class Costs:
    """Costs computes times of a layout. A group has `inside` ranks on each of `across` hosts (dist/comms.h)."""

    def __init__(self, model, layout, engine, gpu, network):
        self.model, self.layout, self.engine, self.gpu, self.network = model, layout, engine, gpu, network
        self.layer = model.layer_weights // layout.tensor  # elements of an FSDP unit
        self.end = model.end_weights // layout.tensor
        self.shard_inside = min(layout.shard, max(1, network.host_ranks // layout.tensor))
        self.replicate_inside = min(layout.replicate, max(1, network.host_ranks // (layout.tensor * layout.shard)))
        self.reduces_each = engine.reduces_each_micro_batch and not layout.whole_gradients

    def gather(self, size, ranks, inside):
        """Ring all-gather of `size` bytes. Inside one host copy engines make it and hold no multiprocessor."""
        net, hosts = self.network, ranks // inside
        if ranks == 1:
            return Call()
        moved = size * (ranks - 1) / ranks
        latency = net.call + (ranks - hosts) * net.hop + (hosts - 1) * net.hop_across
        if hosts == 1:
            return Call(latency + moved / net.nvlink, self.gpu.launch)
        wire = moved / min(net.nvlink, inside * net.nic)
        channels = min(self.engine.most_channels, inside * net.nic_channels)
        return Call(latency + wire, self.gpu.launch, (latency + wire) * channels, wire=wire)

    def chunks(self, inside, across, n, across_bytes):
        """Number of chunks of a reduction to n elements a rank (dist/reduction.cpp, ReduceRing::chunk)."""
        column_bytes = inside * (BF16 if inside > 1 else across_bytes)
        column_bytes += across_bytes if inside > 1 and across > 1 else 0
        if self.engine.ring_share:
            whole = 2 * FP32 * n * (inside * across + inside * across // 2)
            memory = max(min(whole, self.engine.ring_bytes), min(whole / self.engine.ring_share, 512 << 20))
            if 2 * across * column_bytes * n <= memory:
                return 1
            slot = memory / (2 if inside > 1 and across > 1 else 1)
            return next(k for k in range(2, n) if 2 * across * column_bytes * math.ceil(n / k) <= slot)
        columns = n
        while 2 * across * column_bytes * columns > self.engine.ring_bytes and columns > 128:
            columns = math.ceil(columns / 2 / 128) * 128
        return math.ceil(n / columns)

    def reduce(self, elements, inside, across, of_replicas=False):
        """Sum of a whole unit's fp32 gradients over inside x across ranks (ReduceRing::reduce_scatter)."""
        net, gpu, ranks, across_bytes = self.network, self.gpu, inside * across, self.engine.across_bytes
        if ranks == 1:
            return Call()
        if self.engine.rounds_sums and (inside == 1 or of_replicas):
            across_bytes = BF16
        chunks = self.chunks(inside, across, math.ceil(elements / ranks), across_bytes)
        m = elements / ranks / chunks  # columns of a chunk
        sent = BF16 if inside > 1 else across_bytes
        pack = ranks * m * (FP32 + sent) / gpu.memory
        near = near_sum = far = far_sum = wire = 0.0
        if inside > 1:
            near = net.call + (inside - 1) * (net.hop + across * m * sent / net.nvlink)
            written = m * 2 * FP32 if across == 1 else across * m * across_bytes
            near_sum = (ranks * m * sent + written) / gpu.memory
        if across > 1:
            wire = (across - 1) * m * across_bytes / net.nic
            far = net.hop_across + (across - 1) * net.proxy + wire
            far_sum = (across * m * across_bytes + m * 2 * FP32) / gpu.memory
        first = gpu.launch + pack + near + (near_sum + gpu.launch if inside > 1 else 0.0)
        second = far + far_sum + gpu.launch if across > 1 else 0.0
        hidden = (chunks - 1) * min(first, second) if self.engine.stages_overlap else 0.0
        seconds = chunks * (first + second) - hidden
        channels = min(self.engine.most_channels, net.nic_channels)
        return Call(seconds, seconds - (second or near + near_sum + gpu.launch), chunks * far * channels,
                    chunks * (pack + near_sum + far_sum), chunks * wire)

    def fill(self, elements):
        """Sets a unit's gradients to 0 after its reduction."""
        is_filled = self.reduces_each and not self.engine.sets_gradients
        seconds = FP32 * elements / self.gpu.memory if is_filled else 0.0
        return Call(seconds, memory=seconds)

    def reduce_unit(self, elements, last):
        """Reduction along shard; in the last micro-batch also the all-reduce along replicate."""
        mine, r = elements / self.layout.shard, self.layout.replicate
        call = self.reduce(elements, self.shard_inside, self.layout.shard // self.shard_inside) + self.fill(elements)
        if last and r > 1:
            call += self.reduce(mine, self.replicate_inside, r // self.replicate_inside, of_replicas=True)
            if self.engine.rounds_sums:  # and converted back
                seconds = (BF16 + FP32) * mine / self.gpu.memory
                call += self.gather(BF16 * mine, r, self.replicate_inside) + Call(seconds, memory=seconds)
            else:
                call += self.gather(FP32 * mine, r, self.replicate_inside)
        return call

    def tensor_sum(self):
        """Sum of the pieces of an all-to-all over tensor ranks: pieces, residual, sum."""
        size = self.layout.tokens * self.model.width * BF16
        return (size + 2 * size / self.layout.tensor) / self.gpu.memory + self.gpu.launch

    def tensor(self, gathers, sums):
        """All-gathers, and all-to-alls with their sums, of the residual stream over tensor ranks."""
        t, net = self.layout.tensor, self.network
        size = self.layout.tokens * self.model.width * BF16
        latency, moved = net.call + (t - 1) * net.hop, size * (t - 1) / t / net.nvlink
        latency *= self.engine.tensor_chunks
        share = 1.0 if self.engine.tensor_copies else net.kernel_share
        seconds = gathers * (latency + moved) + sums * (latency + moved / share + self.tensor_sum())
        return seconds if t > 1 else 0.0

    def products(self, matmul):
        """Seconds of the matmuls of a layer, which has `matmul` s a weight: q, k, v; out; gate, up; down."""
        m = self.model
        outputs = ((m.heads + 2 * m.kv_heads) * m.head_size, m.heads * m.head_size, 2 * m.mlp_width, m.mlp_width)
        return [matmul * each * m.width / self.layout.tensor for each in outputs]

    def chunked(self, gathers, sums, product):
        """Exposed seconds of one tensor call before or after its matmul, both in chunks."""
        call, chunks = self.tensor(gathers, sums), self.engine.tensor_chunks
        return (call + product + (chunks - 1) * max(call, product)) / chunks - product

    def tensor_forward(self, matmul):
        qkv, out, gate_up, down = self.products(matmul)
        return [self.chunked(1, 0, qkv), self.chunked(0, 1, out), self.chunked(1, 0, gate_up), self.chunked(0, 1, down)]

    def tensor_backward(self, matmul, recompute):
        """Exposed seconds of a layer, whose recompute takes `recompute` s."""
        qkv, out, gate_up, down = self.products(matmul)
        if not self.engine.tensor_beside:
            return self.tensor(4, 2)
        exposed = max(0.0, self.chunked(1, 0, down) - recompute) + self.chunked(1, 0, out)  # dy
        for product in (qkv, gate_up):
            exposed += max(0.0, self.tensor(1, 0) - product)  # of x, beside dx = dy W
            exposed += max(0.0, self.tensor(0, 1) - product)  # of dx, beside dW = dy^T x
        return exposed

    def compute(self):
        """Seconds by line of a layer's forward and backward, and of embedding and head."""
        m, gpu, t, N = self.model, self.gpu, self.layout.tensor, self.layout.tokens
        matmul = 2 * N / (gpu.matmul_flops if t == 1 else gpu.narrow_matmul_flops)  # of a weight
        attention = 2 * N * N * m.heads * m.head_size / t  # FLOPs, causal; backward has 2.5 times as many
        D, F = N * m.width * BF16 / t, N * m.mlp_width * BF16 / t  # bytes of tensors
        rope = 2 * N * (m.heads + m.kv_heads) * m.head_size * BF16 / t
        # Bytes of the fp32 gradient of a weight. Each matmul that adds reads and writes it; the matmul hides half.
        weights = 2 * FP32 / 2
        saved = FP32 / 2 if self.engine.sets_gradients else 0.0  # by the first matmul, which does not read it
        saved /= 1 if self.reduces_each else self.layout.micro_batches
        recompute = 0.0 if self.layout.recomputes_blocks else (4 * D + 3 * F) / gpu.memory
        has_sums = self.engine.tensor_beside and t > 1  # beside matmuls: 2 of backward, and of forward's in chunks
        sums_beside = 2 * self.tensor_sum() if has_sums else 0.0
        *gathers_and_sum, last_sum = self.tensor_forward(matmul)
        forward = collections.Counter({
            "matmuls": matmul * self.layer, "attention": attention / gpu.attention_flops,
            "tensor": sum(gathers_and_sum) + last_sum,
            "memory-bound": (6 * D + rope + 3 * F) / gpu.memory + gpu.layer_gaps / 3,  # norms, RoPE, SwiGLU
            "lost beside": sums_beside * (1 - 1 / self.engine.tensor_chunks)})
        backward = collections.Counter({
            "matmuls": 2 * forward["matmuls"], "attention": 2.5 * attention / gpu.attention_backward_flops,
            "memory-bound": (8 * D + rope + 5 * F + (weights - saved) * self.layer) / gpu.memory
                            + gpu.layer_gaps * 2 / 3 + recompute,
            "tensor": self.tensor_backward(matmul, recompute), "lost beside": sums_beside})
        if self.layout.recomputes_blocks:  # all but the last matrix (model/block.cpp)
            backward.update(forward)
            backward.subtract({"matmuls": matmul * m.width * m.mlp_width / t, "tensor": last_sum})
        logits = N * m.vocabulary * BF16 / t
        chunks = math.ceil(logits / self.engine.head_chunk_bytes)
        ends = {"head matmuls": 3 * matmul * self.end, "tensor": self.tensor(2, 2),
                "memory-bound": (2 * logits + 7 * D + (chunks * weights - saved) * self.end) / gpu.memory}
        return {"forward": forward, "backward": backward, "ends": ends}

    def optimizer(self):
        """Seconds once a step. Four all-reduces of one number are left out: 0.1 to 0.3 ms."""
        whole = self.model.layers * self.layer + 2 * self.end
        is_filled = not self.reduces_each and not self.engine.sets_gradients  # whole gradients are set to 0
        filled = FP32 * whole if is_filled else 0
        return (self.engine.optimizer_bytes * whole / self.layout.shard + filled) / self.gpu.memory

    def beside_optimizer(self):
        """Seconds of the optimizer after the update of the embedding and the first block."""
        if not self.engine.gathers_beside_optimizer:
            return 0.0
        first = (self.end + self.layer) / (self.model.layers * self.layer + 2 * self.end)
        return (1 - first) * self.optimizer()


LINES = ("matmuls", "head matmuls", "attention", "memory-bound", "tensor", "lost beside", "gathers", "reductions",
         "ends", "optimizer")
EXPOSED = ("tensor", "gathers", "reductions", "ends")  # compute waits for communication


class Walk:
    """Walk follows a step on the compute stream and on the streams of gathers and reductions."""

    def __init__(self, costs):
        self.costs, self.engine, self.parts = costs, costs.engine, costs.compute()
        self.lines = collections.Counter()
        self.now = 0.0                              # of the compute stream
        self.free = {"gather": -math.inf, "reduce": -math.inf}  # when the last call of each stream ends
        self.gathered, self.reduced = {}, {}        # unit -> when its last call ends; layer L is the head
        self.wire = 0.0                             # of the last gather

    def enqueue(self, stream, call):
        """With launch order all calls share one queue. Without it a gather and a reduction share the NIC."""
        streams = self.free if self.engine.launch_order else (stream,)
        beside = self.wire if stream == "reduce" and not self.engine.launch_order else 0.0
        end = max(self.now, *(self.free[name] for name in streams)) + call.seconds + beside
        self.free.update(dict.fromkeys(streams, end))
        return end

    def gather(self, unit, elements):
        call = self.costs.gather(BF16 * elements, self.costs.layout.shard, self.costs.shard_inside)
        self.gathered[unit], self.wire = self.enqueue("gather", call), call.wire
        return call

    def reduce(self, unit, elements, last):
        if not (last or self.costs.reduces_each):
            return Call()
        call = self.costs.reduce_unit(elements, last)
        self.reduced[unit] = self.enqueue("reduce", call)
        return call

    def wait(self, line, until):
        self.lines[line] += max(0.0, until - self.now)
        self.now = max(self.now, until)

    def run(self, part, beside=Call()):
        """Computes a part. The calls beside it take memory bandwidth and multiprocessors from it."""
        self.lines.update(self.parts[part])
        seconds = sum(self.parts[part].values())
        share = min(1.0, seconds / beside.seconds) if beside.seconds else 0.0  # of the calls; the rest is waited for
        lost = share * (beside.memory + beside.held / self.costs.gpu.multiprocessors)
        self.lines["lost beside"] += lost
        self.now += seconds + lost

    def micro_batch(self, first, last):
        """Transformer::forward() and backward()."""
        costs, L, early = self.costs, self.costs.model.layers, self.engine.gathers_embedding_early
        kept = () if first else (0, 1)  # the two buffers hold the last two layers of the pass before
        begun = costs.beside_optimizer() if first else 0.0
        self.now -= begun
        if first or not early:
            self.gather("embedding", costs.end)
        if 0 not in kept:
            self.gather(0, costs.layer)
        self.now += begun
        self.wait("ends", self.gathered["embedding"])
        for layer in range(L):
            beside = Call()
            if layer + 1 not in kept:
                beside = self.gather(layer + 1, costs.layer if layer + 1 < L else costs.end)
            self.wait("gathers" if layer > 0 else "ends", self.gathered[layer])
            self.run("forward", beside)
        self.wait("gathers", self.gathered[L])
        self.run("ends")
        reduction = self.reduce(L, costs.end, last)
        for layer in reversed(range(L)):
            is_gathered = 0 < layer < L - 1 and not costs.layout.whole_weights
            gather = self.gather(layer - 1, costs.layer) if is_gathered else Call()
            self.wait("reductions", self.gathered[layer])
            if costs.reduces_each and layer + 2 < L:  # two buffers for gradients
                self.wait("reductions", self.reduced[layer + 2])
            later = self.engine.reduces_block_later and self.engine.tensor_copies  # kernels would extend the order
            waits = self.engine.launch_order and not later
            if waits and costs.layout.tensor > 1 and layer + 1 in self.reduced:
                # The block's first tensor call waits until the last collective of that reduction has begun.
                self.wait("reductions", self.reduced[layer + 1] - reduction.seconds + reduction.begun)
                reduction = costs.fill(costs.layer)
            self.run("backward", gather + reduction)
            reduction = self.reduce(layer, costs.layer, last)
        if early and not last:
            self.gather("embedding", costs.end)
        self.reduce("embedding", costs.end, last)


def step(model, layout, engine, gpu=Gpu(), network=Network()):
    """Returns the lines of a micro-batch in ms: those of a step, divided by its micro-batches."""
    costs = Costs(model, layout, engine, gpu, network)
    walk, m = Walk(costs), layout.micro_batches
    for i in range(m):
        walk.micro_batch(i == 0, i == m - 1)
    walk.wait("ends", max(walk.free.values()))
    walk.lines["optimizer"] = costs.optimizer()
    return {line: 1e3 * walk.lines[line] / m for line in LINES}


# A column of the table. Goal and published figures are tokens/s of a GPU; the latter are rows of
# tests/bench/published/throughput.csv.
Run = collections.namedtuple("Run", "name model layout goal published")
LLAMA_8B = Model(layers=32, width=4096, heads=32, kv_heads=8, mlp_width=14336)
LLAMA_70B = Model(layers=80, width=8192, heads=64, kv_heads=8, mlp_width=28672)
RUNS = (
    Run("8B/64 FSDP", LLAMA_8B, Layout(shard=64, micro_batches=8), "10.5k", "10.6k NeMo, 8k FSDP2"),
    Run("8B/1024 FSDP", LLAMA_8B, Layout(shard=1024), "9.5k", "-"),
    Run("8B/1024 HSDP 128x8", LLAMA_8B, Layout(shard=8, replicate=128), "10.3k", "-"),
    Run("70B/512 TP8xFSDP64", LLAMA_70B, Layout(shard=64, tensor=8, micro_batches=8), "0.75k", "0.60-0.65k, 500 W"),
    Run("the same, weights", LLAMA_70B, Layout(shard=64, tensor=8, micro_batches=8, whole_gradients=True), "0.75k",
        "0.60-0.65k, 500 W"),
    Run("70B/512 TP2xFSDP256", LLAMA_70B, Layout(shard=256, tensor=2, micro_batches=2), "1.05k", "0.96k FSDP2, 1.12k NeMo"),
    Run("70B/512 FSDP block", LLAMA_70B, Layout(shard=512, micro_batches=1, recomputes_blocks=True), "-", "0.96k FSDP2"),
    Run("8B/1024 HSDP 16x64", LLAMA_8B, Layout(shard=64, replicate=16, whole_weights=True), "10.3k", "-"),
)


def tokens_per_second(run, lines):
    """Tokens/s of a GPU."""
    return 1e3 * run.layout.tokens / run.layout.tensor / sum(lines.values())


def table(engine):
    """Yields rows: a name and a text for each run."""
    columns = [step(run.model, run.layout, engine) for run in RUNS]
    yield "ms a micro-batch", [run.name for run in RUNS]
    for line in LINES:
        yield line, [f"{lines[line]:.1f}" for lines in columns]
    yield "sum", [f"{sum(lines.values()):.0f}" for lines in columns]
    rates = [tokens_per_second(run, lines) for run, lines in zip(RUNS, columns)]
    yield "tokens/s a GPU", [f"{rate / 1e3:.2f}k" for rate in rates]
    flops = [run.model.token_flops(run.layout.tokens) for run in RUNS]
    yield "MFU", [f"{rate * each / Gpu().peak_flops:.1%}" for rate, each in zip(rates, flops)]
    exposed = [sum(lines[line] for line in EXPOSED) / sum(lines.values()) for lines in columns]
    yield "exposed communication", [f"{share:.1%}" for share in exposed]
    yield "goal, at least", [run.goal for run in RUNS]
    yield "published", [run.published for run in RUNS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="now", help="implementation (default: now)")
    for name, texts in table(ENGINES[parser.parse_args().engine]):
        print(f"{name:22}" + "".join(f"{text:>24}" for text in texts))


if __name__ == "__main__":
    main()
