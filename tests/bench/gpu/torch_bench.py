#!/usr/bin/env python3
"""Training steps of the models of gpu_bench in PyTorch, tuned, to compare with.

usage: torch_bench.py MODEL... [--fp8] [--compile model|blocks|off] [--state fp32|bf16] [--steps N]
       MODEL: gpt2_124m gpt2_1.5b llama_1b llama_3b_8k llama_8b llama_8b_8k, and for a try on the CPU
              gpt2_tiny llama_tiny                    (needs torch; --fp8 needs torchao too)

A step is four micro-batches of random tokens, the clipped global norm, and AdamW, as gpu_bench's.
What is tuned: torch.compile (of the model where it has 12 layers or fewer, else of one block, which
all blocks share, and of the head with its loss), stacked q, k, v and gate, up; of PyTorch's fused
attention the fastest for the model's shape, tried before; fused AdamW. The residual stream is bf16.

What each side keeps for a parameter, in bytes:
  state fp32 (up to 3B)    here: fp32 weight, gradient and two moments, 16; products by autocast, whose
                           bf16 copies live as long as a micro-batch. gpu_bench: 18, as its bf16 weight
                           stays.
  state bf16 (8B)          here: bf16 weight, gradient and two moments, 8, rounded to nearest, so that
                           small updates are lost. gpu_bench: 10, as it sums gradients in fp32; its
                           rounding is stochastic.

Where memory does not suffice, the micro-batch is halved and there are twice as many. Prints tokens a
second, best and median, and the most memory that tensors took and that PyTorch held.
"""

import argparse
import contextlib
import dataclasses
import gc
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

MICRO_BATCHES = 4


@dataclasses.dataclass(frozen=True)
class Model:
    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp_width: int
    vocabulary: int  # GPT-2's 50257 padded to a multiple of 64
    length: int
    sequences: int  # of a micro-batch
    state: str = "fp32"
    tied: bool = False  # the head's matrix is the embedding's


MODELS = {
    "gpt2_124m": Model("gpt2", 12, 768, 12, 12, 3072, 50304, 1024, 64, tied=True),
    "gpt2_1.5b": Model("gpt2", 48, 1600, 25, 25, 6400, 50304, 1024, 16, tied=True),
    "llama_1b": Model("llama", 16, 2048, 32, 8, 8192, 128256, 2048, 8),
    "llama_3b_8k": Model("llama", 28, 3072, 24, 8, 8192, 128256, 8192, 2, tied=True),
    "llama_8b": Model("llama", 32, 4096, 32, 8, 14336, 128256, 4096, 2, "bf16"),
    "llama_8b_8k": Model("llama", 32, 4096, 32, 8, 14336, 128256, 8192, 1, "bf16"),
    "gpt2_tiny": Model("gpt2", 2, 64, 2, 2, 256, 320, 32, 4, tied=True),
    "llama_tiny": Model("llama", 2, 64, 4, 2, 128, 320, 32, 4, "bf16"),
}


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = m.heads, m.kv_heads, m.width // m.heads
        bias = m.family == "gpt2"
        self.qkv = nn.Linear(m.width, (m.heads + 2 * m.kv_heads) * self.head_size, bias=bias)
        self.out = nn.Linear(m.width, m.width, bias=bias)

    def forward(self, x, rope):
        B, T, D = x.shape
        H, G = self.heads, self.kv_heads
        q, k, v = self.qkv(x).view(B, T, H + 2 * G, self.head_size).transpose(1, 2).split((H, G, G), 1)
        if rope is not None:
            q, k = rotated(q, *rope), rotated(k, *rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != G)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


def rotated(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.gpt2 = m.family == "gpt2"
        norm = nn.LayerNorm if self.gpt2 else nn.RMSNorm
        self.norm1, self.norm2 = norm(m.width, eps=1e-5), norm(m.width, eps=1e-5)
        self.attention = Attention(m)
        self.up = nn.Linear(m.width, m.mlp_width if self.gpt2 else 2 * m.mlp_width, bias=self.gpt2)
        self.down = nn.Linear(m.mlp_width, m.width, bias=self.gpt2)

    def forward(self, x, rope):
        x = x + self.attention(self.norm1(x), rope)
        h = self.up(self.norm2(x))
        if self.gpt2:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Head(nn.Module):
    """The last norm, the logits and their loss."""

    def __init__(self, m, embedding):
        super().__init__()
        self.norm = (nn.LayerNorm if m.family == "gpt2" else nn.RMSNorm)(m.width, eps=1e-5)
        self.matrix = nn.Linear(m.width, m.vocabulary, bias=False)
        if m.tied:
            self.matrix.weight = embedding.weight

    def forward(self, x, targets):
        logits = self.matrix(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


class Transformer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.token = nn.Embedding(m.vocabulary, m.width)
        self.position = nn.Embedding(m.length, m.width) if m.family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.head = Head(m, self.token)
        K = m.width // m.heads
        angles = torch.outer(torch.arange(m.length), 5e5 ** -(torch.arange(0, K, 2) / K))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, inputs, targets):
        x = self.token(inputs)
        rope = None
        if self.position is not None:
            x = x + self.position.weight[:inputs.shape[1]]
        else:
            rope = self.cos, self.sin
        x = x.to(torch.bfloat16)  # which autocast leaves in fp32
        for block in self.blocks:
            x = block(x, rope)
        return self.head(x, targets)


def fastest_attention(m, device):
    """Of the backends of fused attention, by forward and backward at the model's shape."""
    def seconds(backend):
        K = m.width // m.heads
        q, k, v = (torch.randn(m.sequences, heads, m.length, K, device=device, dtype=torch.bfloat16,
                               requires_grad=True) for heads in (m.heads, m.kv_heads, m.kv_heads))
        with sdpa_kernel(backend):
            for calls in (3, 10):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(calls):
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                       enable_gqa=m.heads != m.kv_heads)
                    y.backward(y)
                torch.cuda.synchronize()
        return (time.perf_counter() - begin) / calls

    if device == "cpu":
        return SDPBackend.FLASH_ATTENTION
    times = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            times[backend] = seconds(backend)
        except RuntimeError as error:
            print(f"  {backend.name}: {str(error).splitlines()[0]}")
    print("  " + ", ".join(f"{b.name} {1e3 * s:.2f} ms" for b, s in times.items()), flush=True)
    return min(times, key=times.get)


def built(m, device, state, compiled, fp8):
    torch.manual_seed(1)
    with torch.device(device):  # weights are drawn there: on the host 8B would take minutes
        model = Transformer(m)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
    if state == "bf16":
        model = model.to(torch.bfloat16)
        model.cos, model.sin = model.cos.float(), model.sin.float()
    if fp8:
        from torchao.float8 import convert_to_float8_training
        convert_to_float8_training(
            model, module_filter_fn=lambda module, name: name.startswith("blocks."))
    if compiled == "model":
        model.compile()
    elif compiled == "blocks":
        for part in (*model.blocks, model.head):
            part.compile()
    return model


def run(m, device, sequences, micro_batches, options):
    """Seconds of each step but the first two, which compile."""
    model = built(m, device, options.state, options.compile, options.fp8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(m.vocabulary, (sequences, m.length + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    autocast = (torch.autocast(device, torch.bfloat16) if options.state == "fp32"
                else contextlib.nullcontext())
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    seconds = []
    for _ in range(options.steps + 2):
        begin = time.perf_counter()
        for _ in range(micro_batches):
            with autocast:
                loss = model(inputs, targets)
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        seconds.append(time.perf_counter() - begin)
    if not torch.isfinite(loss):
        raise RuntimeError(f"the loss is {loss.item()}")
    return seconds[2:]


def measure(name, device, options):
    m = MODELS[name]
    options = argparse.Namespace(**vars(options))
    options.state = options.state or m.state
    options.compile = options.compile or ("model" if m.layers <= 12 else "blocks")
    print(f"{name}: PyTorch {torch.__version__}, compiled: {options.compile}, state {options.state}",
          flush=True)
    sequences, micro_batches, seconds = m.sequences, MICRO_BATCHES, None
    with sdpa_kernel(fastest_attention(m, device)):
        while seconds is None:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            try:
                seconds = run(m, device, sequences, micro_batches, options)
            except torch.OutOfMemoryError:
                if sequences == 1:
                    raise
                sequences, micro_batches = sequences // 2, micro_batches * 2
                print(f"  out of memory; retrying with {sequences} sequences", flush=True)
            if seconds is None:  # outside of the handler, which keeps the tensors of its frames
                gc.collect()
                torch.cuda.empty_cache()
    step_tokens = sequences * micro_batches * m.length
    used, held = ((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
                  if device == "cuda" else (0, 0))
    row = f"PyTorch {name}{' fp8' if options.fp8 else ''}, {sequences} x {m.length}"
    print(f"{row:<36} {step_tokens / min(seconds):9.0f} "
          f"{step_tokens / statistics.median(seconds):9.0f} tokens/s, best and median; "
          f"{used / 2**30:.1f} GiB in tensors, {held / 2**30:.1f} held", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--compile", choices=["model", "blocks", "off"])
    parser.add_argument("--state", choices=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    if options.fp8:
        try:
            import torchao
            import torchao.float8
            print(f"torchao {torchao.__version__}")
        except (ImportError, AttributeError) as error:  # one for another PyTorch lacks names
            print(f"fp8 needs torchao: {error}")
            return 77
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    for name in options.models:
        measure(name, device, options)
        torch.compiler.reset()
    return 0


if __name__ == "__main__":
    sys.exit(main())
