"""Makes random models: a family in a random shape, as a model of `transformers`."""

import torch
import transformers
from torch.nn import functional

import make_fixtures

FAMILIES = ("gpt2", "llama3", "qwen2", "qwen3", "smollm3")
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)


class Shape:
    """Shape draws random sizes, which are small and mostly not multiples of a vector."""

    def __init__(self, family, rng):
        self.family = family
        self.length = rng.randrange(3, 40)
        self.max_positions = self.length + rng.randrange(20)
        self.vocabulary = rng.randrange(20, 400)
        self.layers = rng.randrange(2, 7) if family == "smollm3" else rng.randrange(1, 4)
        self.kv_heads = rng.randrange(1, 4)
        self.heads = self.kv_heads * rng.randrange(1, 4)
        self.head_size = 2 * rng.randrange(1, 13)
        self.width = rng.randrange(8, 70)
        if family == "llama3":  # `transformers` refuses other widths, even if head_dim is set
            self.width = self.heads * rng.randrange(1 + 8 // self.heads, 2 + 60 // self.heads)
        if family == "gpt2":
            # In few dimensions a vector can nearly equal its mean; LayerNorm then divides by almost zero.
            self.kv_heads, self.head_size = self.heads, rng.randrange(1 + 15 // self.heads, 17)
            self.width = self.heads * self.head_size
        self.mlp_width = rng.randrange(8, 120)
        # fp32 represents these numbers exactly, or its shortest form prints them again.
        self.norm_epsilon = float(f"{rng.randrange(10, 200)}e-7")
        self.rope_theta = float(rng.randrange(1000, 10_000_000))
        self.tied_head = rng.random() < 0.5
        self.no_rope_every = rng.randrange(5) if family == "smollm3" else 0
        self.bias = family in ("llama3", "smollm3") and rng.random() < 0.25  # each matrix has a bias
        # The original context is far below the largest wavelengths, so that both branches of the rule are used.
        self.scaling = family != "gpt2" and rng.random() < 0.6 and dict(
            factor=rng.choice([2.0, 8.5, 32.0]), low_freq_factor=rng.choice([1.0, 1.25]),
            high_freq_factor=rng.choice([2.0, 4.0]),
            original_max_position_embeddings=rng.choice([16, 64]))

    def __str__(self):
        options = [f"L {self.layers}", f"D {self.width}", f"H {self.heads}", f"G {self.kv_heads}",
                   f"K {self.head_size}", f"F {self.mlp_width}", f"V {self.vocabulary}",
                   f"T {self.length}", "tied" if self.tied_head else "untied"]
        options += ["bias"] * self.bias + ["scaled RoPE"] * bool(self.scaling)
        return ", ".join(options)

    def transformers_config(self):
        if self.family == "gpt2":
            return transformers.GPT2Config(
                vocab_size=self.vocabulary, n_embd=self.width, n_layer=self.layers,
                n_head=self.heads, n_inner=self.mlp_width, n_positions=self.max_positions,
                layer_norm_epsilon=self.norm_epsilon, tie_word_embeddings=self.tied_head,
                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **NO_TOKENS)
        rope = dict(rope_type="default", rope_theta=self.rope_theta)
        if self.scaling:
            rope.update(self.scaling, rope_type="llama3")
        sizes = dict(
            vocab_size=self.vocabulary, hidden_size=self.width, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            head_dim=self.head_size, intermediate_size=self.mlp_width,
            max_position_embeddings=self.max_positions, rms_norm_eps=self.norm_epsilon,
            tie_word_embeddings=self.tied_head, rope_parameters=rope, **NO_TOKENS)
        if self.bias:
            sizes.update(attention_bias=True, mlp_bias=True)
        if self.family == "smollm3":
            every = self.no_rope_every
            sizes.update(no_rope_layers=[int(every == 0 or layer % every != 0)
                                         for layer in range(1, self.layers + 1)])
        return {"llama3": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config,
                "qwen3": transformers.Qwen3Config, "smollm3": transformers.SmolLM3Config,
                }[self.family](**sizes)

    def toml(self):
        """Returns the [model] table that describes the same model."""
        keys = ["family", "layers", "width", "heads", "kv_heads", "head_size", "mlp_width",
                "vocabulary", "max_positions", "norm_epsilon", "tied_head"]
        if self.family != "gpt2":
            keys.append("rope_theta")
        if self.family == "smollm3":
            keys.append("no_rope_every")
        table = {key: getattr(self, key) for key in keys}
        if self.bias:
            table.update(qkv_bias=True, mlp_bias=True)
        if self.scaling:
            table.update(
                rope_scaling_factor=self.scaling["factor"],
                rope_scaling_low=self.scaling["low_freq_factor"],
                rope_scaling_high=self.scaling["high_freq_factor"],
                rope_scaling_context=self.scaling["original_max_position_embeddings"])
        return table


def random_model(shape, seed):
    """Returns a model in which a matmul keeps the size of its input, so that errors do not grow."""
    torch.manual_seed(seed)
    return make_fixtures.make_model(shape.transformers_config(), spread=shape.width**-0.5)


def load(directory, dtype=None):
    """Returns the model of a Hugging Face directory, in the type of its config.json, or in `dtype`."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype or "auto", attn_implementation="eager")


def windows(tokens, length):
    """Returns [windows, length + 1] tokens: a window starts at each multiple of `length`."""
    return torch.as_tensor(tokens).unfold(0, length + 1, length)


def loss(model, batch):
    """Returns the mean loss of windows, computed in the type of the model."""
    return functional.cross_entropy(
        model(batch[:, :-1], use_cache=False).logits.flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, batch):
    return loss(model.double(), batch).item()
