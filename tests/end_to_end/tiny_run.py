"""A model and a text so small that several ranks train on two CPU cores in a second."""

import json
import random
import subprocess

CONFIG = """
[model]
family = "{family}"
layers = 2
width = 32
heads = 4
mlp_width = 64
vocabulary = 257
[train]
steps = 6
batch_tokens = 512
sequence_length = 32
threads = 1
micro_batch = 2
[data]
train = ["{data}/train"]
validation = ["{data}/validation"]
[eval]
every_steps = 3
tokens = 1000
[log]
tensorboard = false
"""


def pack(lockstep, folder):
    """Packs a random text into folder/data."""
    rng = random.Random(1)
    words = "the cat sat on a mat and then it ran away from dog".split()
    text = "\n\n".join(" ".join(rng.choice(words) for _ in range(60)) for _ in range(200))
    (folder / "text.txt").write_text(text)
    subprocess.run([lockstep, "data", "pack", str(folder / "text.txt"), "--tokenizer", "bytes",
                    "--document-separator", r"\n\n", "--validation", "10%", "--out",
                    str(folder / "data")], check=True, capture_output=True)


def configuration(folder, family):
    """Writes a configuration that trains on folder/data. Returns its path."""
    path = folder / f"{family}.toml"
    path.write_text(CONFIG.format(family=family, data=folder / "data"))
    return path


def metrics(run):
    if not (run / "metrics.jsonl").exists():
        return []
    text = (run / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def numbers(run):
    return [(m["step"], m["loss"], m["grad_norm"], m.get("validation_loss")) for m in metrics(run)]
