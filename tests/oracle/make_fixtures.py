#!/usr/bin/env python3
"""Writes tests/oracle/fixtures: results of PyTorch for a tiny model of each family.

usage: make_fixtures.py [--out DIR] [FAMILY...]      (needs torch, transformers and safetensors)

For each family a folder of its name holds:
  config.json, model.safetensors  the model as `transformers` saves it, fp32
  expected.safetensors
    inputs, targets  [B, T] int32; a target of -1 is ignored
    logits           [B, T, V]
    loss             [1]: mean over the targets that are not ignored
    grad.NAME        gradient of the loss, for every tensor NAME of model.safetensors
    adamw_losses     [20]: the loss before each step of AdamW on this batch, see train()
    bf16_error       [1]: the error of PyTorch's bf16 gradients: the largest
                     |difference| / |gradient| of all tensors, in the 2-norm

Weights have a larger spread than the initialization of any family, so that each nonlinearity has an
effect. PyTorch computes in float64, except what `transformers` always computes in fp32. The results
are stored in fp32.
"""

import argparse
import copy
import math
import pathlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
B, T = 3, 11

# Unusual on purpose: no size is a multiple of a vector, and heads * head_dim is not the width.
LLAMA_SIZES = dict(
    vocab_size=37, hidden_size=30, intermediate_size=44, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=24,
    bos_token_id=None, eos_token_id=None, pad_token_id=None)

CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=37, n_embd=30, n_layer=2, n_head=3, n_inner=52, n_positions=24,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None),
    "llama3": lambda: transformers.LlamaConfig(
        **LLAMA_SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=64)),
    "qwen2": lambda: transformers.Qwen2Config(
        **LLAMA_SIZES, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3": lambda: transformers.Qwen3Config(
        **LLAMA_SIZES, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "smollm3": lambda: transformers.SmolLM3Config(
        **{**LLAMA_SIZES, "num_hidden_layers": 5, "hidden_size": 21, "num_attention_heads": 3,
           "num_key_value_heads": 1, "intermediate_size": 28},
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=5000000.0)),
}


def make_model(config, spread=0.2):
    """Draws matrices with a standard deviation of `spread`, and vectors with 0.1."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            centre = 1.0 if p.dim() == 1 and not name.endswith("bias") else 0.0
            p.copy_(centre + torch.randn_like(p) * (0.1 if p.dim() == 1 else spread))
    return model


def loss_of(model, inputs, targets):
    logits = model(inputs, use_cache=False).logits
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def train(model, inputs, targets, steps=20):
    """Trains with weight decay 0.1 on tensors of two dimensions, and gradients clipped to a global norm of 1."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss = loss_of(model, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def bf16_error(model, inputs, targets):
    """Returns the error of bf16 gradients; `model` holds its float64 gradients."""
    rounded = copy.deepcopy(model).bfloat16()
    rounded.zero_grad()
    loss_of(rounded, inputs, targets)[1].backward()
    return max(((r.grad.double() - p.grad).norm() / p.grad.norm()).item()
               for (name, p), r in zip(model.named_parameters(), rounded.parameters())
               if p.grad.norm() > 1e-12)


def make(family, out=FIXTURES):
    torch.manual_seed(sorted(CONFIGS).index(family))
    config = CONFIGS[family]()
    folder = out / family
    model = make_model(config)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    inputs = torch.randint(config.vocab_size, (B, T))
    targets = torch.randint(config.vocab_size, (B, T))
    targets[0, 3:] = -1
    targets[2, ::2] = -1
    model = model.double()
    logits, loss = loss_of(model, inputs, targets)
    loss.backward()
    expected = dict(
        inputs=inputs.int(), targets=targets.int(), logits=logits.detach().float(),
        loss=loss.detach().reshape(1).float())
    for name, p in model.named_parameters():
        expected["grad." + name] = p.grad.float().clone()
    expected["bf16_error"] = torch.tensor([bf16_error(model, inputs, targets)])
    expected["adamw_losses"] = torch.tensor(train(model, inputs, targets), dtype=torch.float32)
    versions = dict(torch=torch.__version__, transformers=transformers.__version__)
    save_file(expected, folder / "expected.safetensors", metadata=versions)
    losses = expected["adamw_losses"]
    bytes_all = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{family}: bf16 error {expected['bf16_error'].item():.4f}, loss {loss.item():.6f} "
          f"(uniform {math.log(config.vocab_size):.3f}), "
          f"after 20 steps {losses[-1]:.6f}, {bytes_all} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=FIXTURES)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    arguments = parser.parse_args()
    for name in arguments.families or CONFIGS:
        make(name, arguments.out)
