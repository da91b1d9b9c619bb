#!/usr/bin/env python3
"""A training step of the models of step_bench in PyTorch, tuned, to compare with.

usage: pytorch_bench.py [--model gpt2_124m|byte_10m] [--dtype fp32|bf16] [--batch B] [--length T]
                        [--steps N] [--no-compile]                              (needs torch)

GPT-2 in PyTorch's own operators: fused attention, torch.compile, fused AdamW; bf16 is autocast over
fp32 weights, bf16-weights keeps the weights in bf16 too. One thread a processor, huge pages through
glibc's tunables, which this program sets before it starts itself again. The first two steps compile
and warm up and are not counted. Random tokens. Prints milliseconds and tokens a second, best and
median.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time

TUNABLES = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
            "glibc.malloc.trim_threshold=17179869184")
if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
    os.execve(sys.executable, [sys.executable, *sys.argv],
              {**os.environ, "GLIBC_TUNABLES": TUNABLES})

import torch
import torch.nn.functional as F
from torch import nn

# layers, width, heads, vocabulary (padded, as llm.c's and nanoGPT's, to a multiple of 64)
MODELS = {"gpt2_124m": (12, 768, 12, 50304), "byte_10m": (6, 384, 6, 320)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(D, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, vocabulary):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, inputs, targets):
        x = self.token(inputs) + self.position.weight[:inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="gpt2_124m")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true")
    o = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = Gpt2(*MODELS[o.model])
    if o.dtype == "bf16-weights":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    vocabulary = MODELS[o.model][3]
    tokens = torch.randint(min(vocabulary, 257), (o.batch, o.length + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    loss_of = model if o.no_compile else torch.compile(model)

    seconds = []
    for _ in range(o.steps + 2):
        begin = time.perf_counter()
        autocast = (torch.autocast("cpu", torch.bfloat16) if o.dtype == "bf16"
                    else contextlib.nullcontext())
        with autocast:
            loss = loss_of(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    seconds = sorted(seconds[2:])
    best, median, tokens = seconds[0], statistics.median(seconds), o.batch * o.length
    print(f"PyTorch {torch.__version__} {'eager' if o.no_compile else 'compiled'} {o.model} "
          f"{o.dtype} B {o.batch} T {o.length}, {torch.get_num_threads()} threads: "
          f"best {1e3 * best:.1f} ms, {tokens / best:.0f} tok/s; "
          f"median {1e3 * median:.1f} ms, {tokens / median:.0f} tok/s")


if __name__ == "__main__":
    main()
