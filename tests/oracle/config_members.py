"""Checks members of config.json: the table of docs/huggingface.md, and directories with unusual members.

`transformers` sets every member of a config.json as an attribute, known or not. The page must list
exactly the members that it reads:
  - the fields of the configuration classes
  - the names that the code of these classes looks up
  - the attributes that a model reads when it is loaded, trains a step and generates

For any member and value, both sides must make the same model, or one side must refuse the directory.
"""

import ast
import collections
import copy
import dataclasses
import inspect
import json
import pathlib
import random
import shutil
import textwrap

import tokenizers
import torch
import transformers
from torch.nn import functional
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin

import models
from lockstep import Refused, write_shards

PAGE = pathlib.Path(__file__).parents[2] / "docs/huggingface.md"
USES = ("read", "must be", "ignored")
DRAWS = 100  # directories per family
EXPORTS = 5  # directories that both sides read, and that Lockstep exports
LOSS = 1e-5  # relative, as in compare.py
# Logits of one token at a time, from a cache, are the same sums as those of all tokens, in another order.
CACHED = 1e-4

# Values of every type, and values for some members.
GENERIC = (True, False, None, 0, 2, 1.5, "x", [], {}, {"a": 1})
SPECIAL = {
    "activation_function": ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu"),
    "hidden_act": ("silu", "swish", "gelu"),
    "is_causal": (True, False, None),
    "sliding_window": (None, 2, 4096),
    "attention_chunk_size": (None, 2),
    "attribute_map": ({"rms_norm_eps": "initializer_range"}, {"layer_norm_epsilon": "initializer_range"},
                      transformers.GPT2Config.attribute_map, {}),
    "use_sliding_window": (True, False),
    "max_window_layers": (0, 1, 99),
    "partial_rotary_factor": (1, 1.0, 0.5),
    "no_rope_layer_interval": (1, 2, 4, -2, 0),
    "per_layer_config": ({"0": {"rms_norm_eps": 0.5}}, {"0": {"layer_norm_epsilon": 0.5}}, {}),
    "original_max_position_embeddings": (None, 16, 64),
    "initializer_range": (0.5,),
    "rms_norm_eps": (1e-5, 0.5),
    "layer_norm_epsilon": (1e-5, 0.5),
    "max_position_embeddings": (50, 60),
    "rope_theta": (10000.0, 5000, None),
    "reorder_and_upcast_attn": (True, False),
    "scale_attn_weights": (True, False),
    "scale_attn_by_inverse_layer_idx": (True, False),
    "num_attention_heads": (1, 2),
    "n_head": (1, 2),
    "pad_token_id": (0, 3, -1),
    "dtype": ("float32", "bfloat16"),
    "torch_dtype": ("float32", "bfloat16"),
}
LAYERS = {  # values are drawn for each layer
    "no_rope_layers": ((0, 1), (False, True), (1,), (True,)),
    "layer_types": (("full_attention",), ("attention",), ("full_attention", "sliding_attention")),
}


# ------------------------------------------------------------------------------------------- table


def documented():
    """Returns the members of each family on the page, and how Lockstep uses each."""
    table = collections.defaultdict(dict)
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 4 or not cells[0].startswith("`") or not cells[2].startswith(USES):
            continue
        for family in models.FAMILIES if cells[1] == "all" else cells[1].split():
            for member in cells[0].replace("`", "").split(", "):
                table[family][member] = cells[2]
    return table


def names_taken(function, dictionary):
    """Yields the names that a function looks up in one of its dictionaries."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        match node:
            case (ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="pop" | "get"),
                           args=[ast.Constant(value=str(key)), *_])
                  | ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))
                  | ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()],
                                comparators=[ast.Name(id=name)])) if name == dictionary:
                yield key


def names_asked(directory, config_class):
    """Returns the attributes of a configuration that are read while its model is loaded and used."""
    names, inherited = set(), config_class.__getattribute__

    def watched(self, name):
        names.add(name)
        return inherited(self, name)

    config_class.__getattribute__ = watched
    try:
        for attention in ("eager", "sdpa"):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                directory, attn_implementation=attention)
            tokens = torch.arange(3)[None]
            model.train()(tokens, labels=tokens).loss.backward()
            model.eval().generate(tokens, max_new_tokens=2, do_sample=False)
    finally:
        del config_class.__getattribute__
    return names


def members_read(directory, config_class):
    base = transformers.PreTrainedConfig
    fields = {field.name for field in dataclasses.fields(config_class)}
    settable = {name for name, value in inspect.getmembers(config_class)
                if isinstance(value, property) and value.fset}
    taken = {name for function, dictionary in (
        (base.__post_init__, "kwargs"),
        (RotaryEmbeddingConfigMixin.convert_rope_params_to_dict, "kwargs"),
        (base.from_pretrained, "config_dict"), (base.get_config_dict, "config_dict"),
        (base._get_config_dict, "config_dict"),
        (transformers.AutoConfig.from_pretrained, "config_dict"),
    ) for name in names_taken(function, dictionary)}
    # A file also sets attributes of the class, except methods and properties. watched() does not see that
    # __getattribute__ reads attribute_map.
    asked = {name for name in names_asked(directory, config_class) | {"attribute_map"}
             if not callable(getattr(config_class, name, None))
             and not isinstance(inspect.getattr_static(config_class, name, None), property)}
    generation = set(transformers.GenerationConfig._get_default_generation_params())
    return {name for name in fields | settable | taken | (asked - generation)
            if not name.startswith("_")}


def check_table(report, case):
    name = f"config members, {case.family}"
    table = documented()[case.family]
    if case.family != "gpt2":  # more members are read if RoPE is scaled
        case.path.write_text(json.dumps(case.config | {"rope_parameters": dict(
            rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0)}))
    read = members_read(case.directory, type(case.model.config))
    # Members of quantized weights may come from other programs.
    ours = {member for member, use in table.items() if use != "must be absent"}
    report.check(f"{name}: each member that transformers reads is documented", read <= table.keys(),
                 ", ".join(sorted(read - table.keys())) or f"{len(read)}")
    report.check(f"{name}: transformers reads each member that is documented", ours <= read,
                 ", ".join(sorted(ours - read)) or f"{len(ours)}")


# ------------------------------------------------------------------------------------- directories


class Case:
    """Case holds a model with four layers and an untied head, and a few tokens."""

    def __init__(self, family, seed, folder, lockstep):
        self.rng = rng = random.Random(f"config members {family} {seed}")
        self.family, self.lockstep, self.directory = family, lockstep, folder / family
        self.shape = shape = models.Shape(family, rng)
        shape.layers, shape.tied_head, shape.no_rope_every = 4, False, rng.choice((0, 2, 4))
        shape.max_positions = 64
        self.model = models.random_model(shape, rng.randrange(1 << 30))
        self.model.save_pretrained(self.directory)
        self.path = self.directory / "config.json"
        self.config = json.loads(self.path.read_text())
        tokens = torch.randint(shape.vocabulary, (4 * shape.length + 1,),
                               generator=torch.Generator().manual_seed(rng.randrange(1 << 30)))
        self.windows = models.windows(tokens, shape.length)
        (folder / f"{family}_tokens").mkdir()
        self.shards = write_shards(folder / f"{family}_tokens", rng, tokens.numpy())

    def rope_table(self):
        """Returns one of a few tables, so that two draws are often equal."""
        rng, theta = self.rng, self.shape.rope_theta
        table = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
                     original_max_position_embeddings=16) if rng.random() < 0.6 else {}
        kind = "llama3" if table else "default"
        for name in rng.choice((("rope_type",), ("rope_type",), ("type",), ("rope_type", "type"),
                                ())):
            table[name] = kind if rng.random() < 0.9 else rng.choice(("default", "linear"))
        if rng.random() < 0.6:
            table["rope_theta"] = rng.choice((theta, theta, 5000.0))
        if rng.random() < 0.2:
            table.pop("original_max_position_embeddings", None)
        if rng.random() < 0.1:
            table[rng.choice(("mscale", "partial_rotary_factor", "factor"))] = rng.choice((0.5, 1))
        return table

    def change_rope(self, config):
        """Sets RoPE in several places of the file."""
        rng = self.rng
        del config["rope_parameters"]
        tables = [self.rope_table()] * 2 if rng.random() < 0.4 else [self.rope_table(),
                                                                     self.rope_table()]
        for place, table in zip(("rope_parameters", "rope_scaling"), tables):
            if rng.random() < 0.7:
                config[place] = dict(table)
        if rng.random() < 0.7:
            config["rope_theta"] = rng.choice((self.shape.rope_theta, self.shape.rope_theta, 5000))
        if rng.random() < 0.3:
            config["original_max_position_embeddings"] = rng.choice((16, 16, 32))

    def change_members(self, config):
        rng = self.rng
        # Tied heads are not drawn, because they change which tensors are read.
        for member in rng.sample(sorted(documented()[self.family].keys() - {"tie_word_embeddings"}),
                                 rng.randrange(1, 3)):
            if member in LAYERS:
                kinds = rng.choice(LAYERS[member])
                value = [rng.choice(kinds) for _ in range(rng.choice((3, 4, 4, 4, 6)))]
            else:
                value = rng.choice(SPECIAL.get(member, GENERIC) if rng.random() < 0.8 else GENERIC)
            config[member] = value

    def draw(self):
        config = copy.deepcopy(self.config)
        if self.family != "gpt2" and self.rng.random() < 0.4:
            self.change_rope(config)
        else:
            self.change_members(config)
        return config

    def write(self, config):
        """Writes `config`, sometimes with a repeated member, of which `transformers` uses the last."""
        text = json.dumps(config)
        if self.rng.random() < 0.1:
            text = f'{{"{self.rng.choice(list(config))}": {json.dumps(self.rng.choice(GENERIC))}, {text[1:]}'
        self.path.write_text(text)

    def ours(self):
        try:
            return self.lockstep.loss(self.directory, self.shards, self.shape.length)
        except Refused:
            return None

    def export(self, out):
        """Returns the loss of `transformers` for the directory that Lockstep exports."""
        shutil.rmtree(out, ignore_errors=True)
        self.lockstep.export(self.directory, out, "fp32")
        return models.evaluate(models.load(out, torch.float32), self.windows)

    @torch.no_grad()
    def theirs(self):
        """Returns the loss, and the error of logits that come from a cache; None if it fails."""
        try:
            model = models.load(self.directory, torch.float32).eval()
            inputs = self.windows[:, :-1]
            whole, steps, cache = model(inputs, use_cache=False).logits, [], None
            for token in inputs.split(1, dim=1):
                out = model(token, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                steps.append(out.logits)
            error = (torch.cat(steps, 1) - whole).abs().max() / whole.abs().max()
            return models.evaluate(model, self.windows), error.item()
        except Exception:  # of any type: a member of the wrong type can fail anywhere
            return None


def differences(before, after):
    return json.dumps({key: after.get(key, "absent") for key in before | after
                       if before.get(key, "absent") != after.get(key, "absent")})


def check_directories(report, case):
    name = f"config.json with unusual members, {case.family}"
    counts, worst, wrong = collections.Counter(), 0.0, []
    out = case.directory.with_name(f"{case.family}_out")
    for _ in range(DRAWS):
        config = case.draw()
        case.write(config)
        ours, theirs = case.ours(), case.theirs()
        counts["both read" if ours and theirs else "refused here" if theirs else
               "refused there" if ours else "refused by both"] += 1
        if ours is None or theirs is None:
            continue
        loss, cached = theirs
        error = abs(ours - loss) / loss
        if counts["both read"] <= EXPORTS:
            error = max(error, abs(case.export(out) - loss) / loss)
        worst = max(worst, error)
        if error > LOSS or cached > CACHED:
            wrong.append(f"{differences(case.config, config)}: {ours} and {loss}, "
                         f"from a cache {cached:.1e}")
    for one in wrong:
        print(f"       {one}")
    report.check(f"{name}: each directory gives the same model on both sides, or is refused", not wrong,
                 f"largest error {worst:.1e}, {dict(counts)}")
    report.check(f"{name}: some are read and some refused", counts["both read"] > EXPORTS and
                 counts["refused here"] + counts["refused by both"] > EXPORTS)


def check_padding(report, case):
    """Checks the difference in padding that the page describes."""
    if case.family == "gpt2":
        return
    case.path.write_text(json.dumps(case.config | {"pad_token_id": 3}))
    model = models.load(case.directory, torch.float32)
    batch = case.windows.clone()
    batch[:, 0] = 3
    functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1),
                             batch[:, 1:].flatten()).backward()
    row = model.get_input_embeddings().weight.grad[3]
    report.check(f"config members, {case.family}: transformers gives the padding token no gradient",
                 not row.any())


def check_added_tokens(report):
    """Checks the difference in added tokens that the page describes.

    tests/data/tokenizer/tokenizer_json_test.cpp checks the side of Lockstep."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<s>", "<t>"])
    file = json.loads(made.to_str())
    for token, number in zip(file["added_tokens"], (300, 305)):
        token["id"] = number
    ids = tokenizers.Tokenizer.from_str(json.dumps(file)).encode("<s><t>").ids
    report.check("tokenizers renumbers added tokens with ids 300 and 305 after 256 others",
                 ids == [256, 257], f"{ids}")


def check(report, families, seed, folder, lockstep):
    folder.mkdir()
    report.run("added tokens", check_added_tokens)
    for family in families:
        case = Case(family, seed, folder, lockstep)
        report.run(f"config members, {family}", check_table, case)
        report.run(f"config.json with unusual members, {family}", check_directories, case)
        report.run(f"padding, {family}", check_padding, case)
