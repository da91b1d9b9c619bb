#!/usr/bin/env python3
"""Fine-tuning from an imported model on datasets whose masks exclude prompts from the loss. The model learns
responses and ends them. Masked text changes neither a loss nor a bit of the weights.

usage: finetune_test.py LOCKSTEP
"""

import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from pack_test import Bpe, WORDS, read_dataset
from tiny_run import metrics

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import says  # noqa: E402

LOCKSTEP = sys.argv[1]
T = 64  # longer than any example
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def near(a, b, tolerance):
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def run(*arguments):
    done = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, timeout=300, check=False)
    expect(done.returncode == 0, f"{arguments}: {done.returncode}: {done.stderr.decode()[-700:]}")
    return done.stdout.decode()


# The answers to learn: the colour before the question mark decides the answer.
ANSWERS = {"red": "stop", "green": "go on", "blue": "sail away"}


def asked(rng):
    colour = rng.choice(list(ANSWERS))
    return f"{' '.join(rng.choice(WORDS[:12]) for _ in range(rng.randrange(1, 6)))} {colour}?", ANSWERS[colour]


class Tuning:
    def __init__(self, folder):
        self.folder, self.rng, self.runs = folder, random.Random(4), 0
        self.bpe = Bpe()
        self.tokenizer = self.bpe.write(folder / "bpe")
        self.model = self.hugging_face_model()
        self.table = run("config", "--model", self.model)

    def train(self, config, *settings):
        """Trains a new run. Returns its directory."""
        self.runs += 1
        path, out = self.folder / f"{self.runs}.toml", self.folder / f"run{self.runs}"
        path.write_text(config + "[log]\ntensorboard = false\n")
        flags = [flag for setting in settings for flag in ("--set", setting)]
        run("train", path, "--run", out, "--device", "cpu", "--set", "train.threads=1", *flags)
        return out

    def hugging_face_model(self):
        """The directory of a model that was trained on a little text."""
        text = self.folder / "text.txt"
        text.write_text("\n\n".join(" ".join(self.rng.choice(WORDS) for _ in range(60)) for _ in range(60)))
        run("data", "pack", text, "--document-separator", r"\n\n", "--tokenizer", self.tokenizer, "--out",
            self.folder / "text")
        model = self.train(f"""
[model]
family = "llama3"
layers = 2
width = 64
heads = 4
mlp_width = 128
vocabulary = {self.bpe.vocabulary}
max_positions = 128
[train]
steps = 30
batch_tokens = 512
sequence_length = {T}
[optimizer]
learning_rate = 1e-2
[data]
train = ["{self.folder / 'text'}"]
""")
        run("checkpoint", "export", model, "--out", self.folder / "model", "--dtype", "fp32")
        return self.folder / "model"

    def lines(self, name, objects):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(o) + "\n" for o in objects))
        return path

    def pack(self, name, objects, *options):
        out = self.folder / name
        run("data", "pack", self.lines(name, objects), *options, "--tokenizer", self.tokenizer, "--out", out)
        return out

    def tune(self, data, steps, *settings):
        """Trains from the Hugging Face model. The rate is constant, so that runs of any length begin equally."""
        return self.train(self.table + f"""
[train]
steps = {steps}
batch_tokens = {16 * T}
sequence_length = {T}
init_from = "{self.model}"
weight_hash_every_steps = 1
[optimizer]
learning_rate = 3e-3
[schedule]
kind = "constant"
warmup_steps = 0
[data]
train = ["{data}"]
""", *settings)

    def loss(self, model, data):
        """(mean, number of targets)"""
        found = json.loads(run("eval", model, "--data", data, "--sequence-length", T, "--device", "cpu",
                               "--tokenizer", self.tokenizer))
        return found["loss_nats"], found["tokens"]

    def generate(self, model, prompts, *options):
        path = self.lines("prompts", [{"prompt": p} for p in prompts])
        said = run("generate", model, "--prompt-file", path, "--temperature", 0, "--tokens", 24, "--device", "cpu",
                   *options)
        return [json.loads(line) for line in said.splitlines()]


def responses_are_learned_and_end(tuning, train, held_out):
    tuned = tuning.tune(train, 100)
    for data in (train, held_out):
        before, after = tuning.loss(tuning.model, data)[0], tuning.loss(tuned, data)[0]
        print(f"loss of responses: {before:.3f}, tuned {after:.5f}")
        expect(before > 3 and after < 0.05, f"the loss of responses falls: {before}, then {after}")
    questions = [asked(tuning.rng) for _ in range(16)]
    for (_, answer), line in zip(questions, tuning.generate(tuned, [q for q, _ in questions]), strict=True):
        expect(line["text"] == answer and line["finish"] == "end", f"{line}: expected {answer} and an end")
        expect(line["tokens"] == len(tuning.bpe.plain(answer.encode())) + 1, f"{line} ends at once")


def masks_are_counted(tuning, train):
    """Losses of prompts and responses are parts of the loss of all tokens. Additional masked documents change
    neither the loss nor the gradient of a step."""
    _, documents = read_dataset(train)
    responses = datatrove(tuning, "responses", documents)
    prompts = datatrove(tuning, "prompts", [(tokens, [1 - m for m in mask]) for tokens, mask in documents])
    whole = datatrove(tuning, "whole", [(tokens, [1] * len(mask)) for tokens, mask in documents])
    (of_responses, n), (of_prompts, m), (of_all, both) = (tuning.loss(tuning.model, data)
                                                          for data in (responses, prompts, whole))
    expect(n == sum(sum(mask[1:]) for _, mask in documents), f"{n} targets are those of the mask")
    expect(n + m == both == sum(len(mask) - 1 for _, mask in documents), f"{n} and {m} of {both} targets")
    expect(near(of_responses * n + of_prompts * m, of_all * both, 1e-6), "losses of parts are the loss of the whole")
    expect(tuning.loss(tuning.model, train) == (of_responses, n), "a .mask and a .ds.loss differ")

    noise = [([tuning.rng.randrange(270) for _ in tokens], [0] * len(mask)) for tokens, mask in documents]
    diluted = datatrove(tuning, "diluted", documents + noise)
    steps = [metrics(tuning.tune(data, 1, "data.rows=examples", f"train.batch_tokens={count * T}"))[0]
             for data, count in ((train, len(documents)), (diluted, 2 * len(documents)))]
    for step in steps:
        expect(step["valid_tokens"] == n, f"a step of all documents has {step['valid_tokens']} targets of {n}")
        expect(near(step["loss"], of_responses, 1e-5), f"its loss {step['loss']} is that of eval, {of_responses}")
    expect(near(steps[0]["grad_norm"], steps[1]["grad_norm"], 1e-5), "masked documents change the gradient")


def datatrove(tuning, name, documents):
    """Writes documents and masks in the format of datatrove."""
    out = tuning.folder / name
    out.mkdir()
    tokens = [token for document, _ in documents for token in document]
    ends = [sum(len(d) for d, _ in documents[:i + 1]) for i in range(len(documents))]
    (out / "a.ds").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    (out / "a.ds.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    (out / "a.ds.loss").write_bytes(bytes(bit for _, mask in documents for bit in mask))
    return out


def conversation(question, answer, rest):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer},
                         {"role": "user", "content": rest}]}


def masked_text_changes_no_bit(tuning):
    """The last message of a user has no targets, and no target attends to it. With other words there, every loss,
    gradient and weight has the same bits. Other answers of the assistant change them."""
    questions = [asked(tuning.rng) for _ in range(200)]
    letters = "bdfgjkmpqvwxz"  # no two of them are one token
    rests = [["".join(tuning.rng.choice(letters) for _ in range(6)) for _ in questions] for _ in range(2)]
    options = ["--messages-field", "messages", "--chat-template", "chatml"]
    sets = [tuning.pack(f"talks{i}", [conversation(q, a, r) for (q, a), r in zip(questions, rest)], *options)
            for i, rest in enumerate(rests)]
    backwards = [conversation(q, a[::-1], r) for (q, a), r in zip(questions, rests[0])]
    sets.append(tuning.pack("backwards", backwards, *options))
    runs = [tuning.tune(data, steps) for data, steps in zip(sets, (100, 12, 12))]
    keys = ("step", "loss", "grad_norm", "valid_tokens", "weight_hash")
    seen = [[[m[key] for key in keys] for m in metrics(r)[:12]] for r in runs]
    expect(read_dataset(sets[0])[1] != read_dataset(sets[1])[1], "the sets differ")
    expect(len(seen[0]) == 12 and all(None not in step for step in seen[0]), f"{seen[0]}")
    expect(seen[0] == seen[1], f"other masked words change nothing: {seen[0]} {seen[1]}")
    expect(seen[0] != seen[2], "other answers do")

    prompts = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q, _ in questions[:8]]
    for (_, answer), line in zip(questions, tuning.generate(runs[0], prompts, "--stop", "<|im_end|>")):
        expect(line["text"] == answer and line["finish"] == "stop", f"{line}: expected {answer} and a stop")


def a_step_without_targets_is_reported(tuning):
    """Prompts that fill their rows leave no positions for targets."""
    data = tuning.pack("long", [{"prompt": "red " * 2 * T, "response": "stop"} for _ in range(16)],
                       "--prompt-field", "prompt", "--response-field", "response")
    config = tuning.folder / "long.toml"
    config.write_text(tuning.table + f"""
[train]
steps = 9
batch_tokens = {4 * T}
sequence_length = {T}
most_skipped = 2
[data]
train = ["{data}"]
""")
    done = subprocess.run([LOCKSTEP, "train", config, "--run", tuning.folder / "long_run", "--device", "cpu"],
                          capture_output=True, timeout=300, check=False)
    said = done.stderr.decode()
    _, skipped, error = said.rpartition(says("train.updates_skipped", count=2))
    expect(done.returncode != 0 and says("train.no_target", step=2) in said
           and skipped and "train.sequence_length" in error and "learning_rate" not in error,
           f"{done.returncode}: {said[-900:]}")


def shards_without_their_manifest_are_rejected(tuning, train):
    """Copies of only *.bin, *.ends and *.mask look like files of llm.c, which would lose masks and documents."""
    cut = tuning.folder / "cut"
    shutil.copytree(train, cut, ignore=shutil.ignore_patterns("dataset.json"))
    config = tuning.folder / "cut.toml"
    config.write_text(tuning.table + f"""
[train]
steps = 1
batch_tokens = {16 * T}
sequence_length = {T}
[data]
train = ["{cut}"]
""")
    for verb in (("train", config, "--run", tuning.folder / "cut_run", "--device", "cpu"),
                 ("eval", tuning.model, "--data", cut, "--sequence-length", T, "--device", "cpu"),
                 ("data", "inspect", cut), ("data", "verify", cut), ("data", "inspect", cut / "*.bin"),
                 ("data", "convert", cut, "--to", "datatrove", "--out", tuning.folder / "cut_out")):
        done = subprocess.run([LOCKSTEP, *map(str, verb)], capture_output=True, timeout=300, check=False)
        said = done.stderr.decode()
        expect(done.returncode == 65 and says("data.no_manifest") in said,
               f"{verb}: {done.returncode}: {said[-700:]}")


CHAT_FILES = {"chat_template.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}\n",
              "special_tokens_map.json": '{"eos_token": "<|im_end|>"}', "added_tokens.json": "{}",
              "merges.txt": "#version: 0.2\n", "additional_chat_templates/tools.jinja": "{{ tools }}"}


def a_chat_model_survives_a_round_trip(tuning):
    """Template, map of tokens, and the ids at which `transformers` stops, survive a run and an export."""
    ids = tuning.bpe.specials
    chat = tuning.folder / "chat"
    shutil.copytree(tuning.model, chat)
    files = CHAT_FILES | {
        "tokenizer_config.json": json.dumps({"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
        "generation_config.json": json.dumps({"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
                                              "pad_token_id": ids["<|endoftext|>"], "temperature": 0.6})}
    (chat / "additional_chat_templates").mkdir()
    for name, text in files.items():
        (chat / name).write_text(text)
    files["tokenizer.json"] = (chat / "tokenizer.json").read_text()

    def exported(run_directory, name, *options):
        out = tuning.folder / name
        done = subprocess.run([LOCKSTEP, "checkpoint", "export", run_directory, "--out", out, *options],
                              capture_output=True, timeout=300, check=False)
        expect(done.returncode == 0, f"{name}: {done.stderr}")
        return out, done.stderr.decode()

    lines = tuning.lines("chat_talks", [conversation(*asked(tuning.rng), "x") for _ in range(64)])
    run("data", "pack", lines, "--messages-field", "messages", "--chat-template", "chatml", "--tokenizer", chat,
        "--out", tuning.folder / "chat_data")
    model, tuning.model = tuning.model, chat
    tuned = tuning.tune(tuning.folder / "chat_data", 3)
    tuning.model = model
    run("checkpoint", "import", os.path.relpath(chat), "--out", tuning.folder / "chat_import")
    origin = re.search(r'imported_from: (.+)', run("checkpoint", "inspect", tuning.folder / "chat_import"))
    expect(origin is not None and origin[1] == str(chat), f"{origin}: where it was imported from, from the root")
    for source in (tuned, tuning.folder / "chat_import", chat):
        out, said = exported(source, f"{source.name}_out")
        for name, text in files.items():
            expect((out / name).exists() and (out / name).read_text() == text, f"{source}: {name} comes back")
        config = json.loads((out / "config.json").read_text())
        expect((config["bos_token_id"], config["eos_token_id"], config["pad_token_id"])
               == (None, [ids["<|im_end|>"], ids["<|endoftext|>"]], ids["<|endoftext|>"]), f"{source}: {config}")
        expect("--tokenizer-from" not in said, said)
    # An earlier version kept only two files: the export has the ids of the tokenizer, and names the other files.
    for path in (tuned / "tokenizer").rglob("*"):
        if path.is_file() and path.name not in ("tokenizer.json", "tokenizer_config.json"):
            path.unlink()
    out, said = exported(tuned, "before_out")
    expect(f"--tokenizer-from {chat}" in said and "chat_template.jinja, generation_config.json" in said, said)
    config = json.loads((out / "config.json").read_text())
    expect(config["eos_token_id"] == ids["<|im_end|>"] and config["pad_token_id"] == ids["<|endoftext|>"], f"{config}")
    generation = json.loads((out / "generation_config.json").read_text())
    expect(generation["eos_token_id"] == ids["<|im_end|>"], f"{generation}")
    out, said = exported(tuned, "from_out", "--tokenizer-from", chat)
    expect("--tokenizer-from" not in said and all((out / name).read_text() == text for name, text in files.items()), said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        tuning = Tuning(pathlib.Path(folder))
        pairs = [{"prompt": q, "response": a} for q, a in (asked(tuning.rng) for _ in range(320))]
        fields = ["--prompt-field", "prompt", "--response-field", "response"]
        train, held_out = tuning.pack("train", pairs[:256], *fields), tuning.pack("held_out", pairs[256:], *fields)
        responses_are_learned_and_end(tuning, train, held_out)
        masks_are_counted(tuning, train)
        a_step_without_targets_is_reported(tuning)
        shards_without_their_manifest_are_rejected(tuning, train)
        masked_text_changes_no_bit(tuning)
        a_chat_model_survives_a_round_trip(tuning)
    print(len(failures), "failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
