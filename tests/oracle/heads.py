"""Checks directories whose head and embedding are tied or untied, equal or different, or where one is missing.

The weights are those of a random model, in one file or several. Each tensor has its own type.
"""

import json

import safetensors.torch
import torch

import models
from lockstep import Refused

# Values are rounded to the first two types, so that every type represents them.
TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
EMBEDDING = {"gpt2": "transformer.wte.weight"}
HEAD = "lm_head.weight"


def write(folder, config, tensors, files):
    """Writes a directory of `transformers` with the tensors in this number of files."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    names = list(tensors)
    shards = [names[i::files] for i in range(files)]
    index = {}
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors" if files == 1 else f"model-{number:05}-of-{files:05}.safetensors"
        safetensors.torch.save_file({name: tensors[name].contiguous() for name in shard},
                                    folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, file))
    if files > 1:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": index}))


def draw(case, form, tied):
    """Returns the config.json and tensors of one directory."""
    embedding = EMBEDDING.get(case.family, "model.embed_tokens.weight")
    # These values are exact in bfloat16 and in float16.
    tensors = {name: tensor.bfloat16().half().bfloat16().float()
               for name, tensor in case.model.state_dict().items()}
    weight = tensors[embedding]
    head = weight.clone()
    if form == "different":
        row, column = (case.rng.randrange(size) for size in weight.shape)
        head[row, column] += 1.0 if case.rng.random() < 0.5 else -1.0
        head = head.bfloat16().half().bfloat16().float()
    tensors[HEAD] = head
    if form == "head alone":
        del tensors[embedding]
    if form == "embedding alone":
        del tensors[HEAD]
    tensors = {name: tensor.to(case.rng.choice(TYPES)) for name, tensor in tensors.items()}
    config = case.shape.transformers_config().to_dict()
    config.update(tie_word_embeddings=tied, dtype="float64",
                  architectures=[type(case.model).__name__])
    return config, tensors


def check(report, case, limit):
    """Checks that both losses agree, or that Lockstep refuses the directory and names the key to set."""
    for tied, form in [(tied, form) for tied in (True, False)
                       for form in ("equal", "different", "head alone", "embedding alone")
                       if tied or "alone" not in form]:
        files = case.rng.randrange(1, 4)
        name = f"{case.family}, {'tied' if tied else 'untied'}, {form}, {files} files"
        folder = case.folder / f"head_{tied}_{form.replace(' ', '_')}"
        config, tensors = draw(case, form, tied)
        write(folder, config, tensors, files)
        # If the tensors of a tied model differ, `transformers` uses both.
        expected = models.evaluate(models.load(folder, torch.float64), case.held_out)
        if tied and form == "different":
            try:
                case.loss(folder)
                report.check(f"{name}: refused", False, "it was evaluated")
            except Refused as refusal:
                text = str(refusal)
                report.check(f"{name}: refused with the key to set",
                             HEAD in text and "tie_word_embeddings" in text, text)
            config["tie_word_embeddings"] = False
            (folder / "config.json").write_text(json.dumps(config))
        error = abs(case.loss(folder) - expected) / abs(expected)
        report.within("loss of models with two heads", name, error, limit)
