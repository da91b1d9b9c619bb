#!/usr/bin/env python3
"""Runs eval and generate as users do, on one rank and under mpirun, and checks that tokenizers stay with models.

usage: evaluation_test.py LOCKSTEP FIXTURE

FIXTURE: tests/oracle/fixtures/choices. Without mpirun only one rank is tested, and the test prints this.
"""

import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from wording import pattern, says  # noqa: E402

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   LC_ALL="C")
for name in list(ENVIRONMENT):  # this test may itself run under a launcher
    if name.startswith(("OMPI_COMM", "PMIX_", "SLURM_")):
        del ENVIRONMENT[name]
ALONE = dict(env=ENVIRONMENT, start_new_session=True)  # see mpirun_test.py

LOCKSTEP, FIXTURE = sys.argv[1], pathlib.Path(sys.argv[2])
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, ranks=1, code=0):
    """Runs `lockstep` on some ranks. Returns standard output and standard error."""
    command = [LOCKSTEP, *map(str, arguments)]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    done = subprocess.run(command, **ALONE, capture_output=True, timeout=240, check=False)
    said = done.stderr.decode(errors="replace")
    expect(done.returncode == code, f"{arguments} on {ranks}: {done.returncode}: {said[-700:]}")
    return done.stdout.decode(errors="replace"), said


def layouts():
    found = [(1, [])]
    if shutil.which("mpirun") is None:
        print("mpirun is not installed (openmpi-bin): only one rank is tested")
        return found
    return found + [(2, []), (2, ["--tensor", "2"]), (4, ["--tensor", "2", "--shard", "2"])]


def check_choices(folder):
    expected = json.loads((FIXTURE / "expected.json").read_text())
    for ranks, flags in layouts():
        out = folder / f"records_{ranks}_{len(flags)}.jsonl"
        said, _ = run("eval", FIXTURE, "--choices", FIXTURE / "questions.jsonl", "--out", out,
                      "--device", "cpu", *flags, ranks=ranks)
        lines = said.splitlines()
        expect(len(lines) == 1, f"only one rank prints: {said}")
        found = json.loads(lines[0])
        for key in ("acc", "acc_norm", "acc_bytes", "acc_stderr", "acc_norm_stderr"):
            expect(abs(found[key] - expected[key]) < 1e-9, f"{ranks} {flags}: {key} {found[key]}")
        records = [json.loads(line) for line in out.read_text().splitlines()]
        expect([r["id"] for r in records][:6] == ["0", "1", "2", "3", "4", "water"], "ids")
        for record, logp in zip(records, expected["logp"], strict=True):
            expect(all(abs(a - b) < 1e-4 for a, b in zip(record["logp"], logp, strict=True)),
                   f"{ranks} {flags}: {record}, expected {logp}")


def on_terminal(command):
    """The output of `command` on a terminal."""
    reader, terminal = pty.openpty()
    with subprocess.Popen(command, **ALONE, stdout=terminal, stderr=subprocess.DEVNULL) as done:
        os.close(terminal)
        text = b""
        try:
            while part := os.read(reader, 1 << 16):
                text += part
        except OSError:  # the terminal is closed
            pass
        os.close(reader)
    expect(done.returncode == 0, f"{command}: {done.returncode}")
    return text.decode().replace("\r\n", "\n")


def check_table(_folder):
    """eval prints a table on a terminal, unless a launcher started it."""
    asked = [LOCKSTEP, "eval", str(FIXTURE), "--choices", str(FIXTURE / "questions.jsonl"), "--device", "cpu"]
    expected = json.loads((FIXTURE / "expected.json").read_text())
    rows = dict(line.split("  ", 1) for line in on_terminal(asked).splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    expect(rows.get("model") == str(FIXTURE), f"{rows}")
    for name in ("acc", "acc_norm"):
        share, error = rows[name.replace("_", " ")].split(" +- ")
        expect(abs(float(share) - expected[name]) < 1e-4, f"{name}: {rows}")
        expect(abs(float(error) - expected[name + "_stderr"]) < 1e-4, f"{name}: {rows}")
    if shutil.which("mpirun"):
        said = on_terminal(["mpirun", "--bind-to", "none", "-n", "1", *asked])
        expect(abs(json.loads(said)["acc"] - expected["acc"]) < 1e-9, said)


def check_refusals(folder):
    bad = folder / "bad.jsonl"
    bad.write_text('{"context": "a", "choices": ["b", "c"], "label": 0}\n{"context": "a"}\n')
    _, said = run("eval", FIXTURE, "--choices", bad, "--device", "cpu", code=65)
    expect(f'{bad}: line 2: ' in said and "choices" in said, said)
    bad.write_text(json.dumps(dict(context="a", choices=["b", "knife " * 90], label=0)))
    _, said = run("eval", FIXTURE, "--choices", bad, "--device", "cpu", code=65)
    expect(f"{bad}: {says('eval.none_scored', line=1)} choices: " in said, said)
    run("eval", FIXTURE, "--questions", "3", code=64)  # needs --choices
    # The error comes before the work, not after it.
    asked = ["eval", FIXTURE, "--choices", FIXTURE / "questions.jsonl", "--device", "cpu", "--out"]
    found, said = run(*asked, folder / "none" / "out.jsonl", code=65)
    expect(str(folder / "none") in said and found == "", f"{found} {said}")
    found, said = run(*asked, folder, code=64)
    expect(str(folder) in said and found == "", f"{found} {said}")
    prompts = folder / "long.jsonl"
    prompts.write_text('{"prompt": "x"}\n\n' + json.dumps({"prompt": "knife " * 90}) + "\n")
    found, said = run("generate", FIXTURE, "--prompt-file", prompts, "--device", "cpu", "--tokens", "2")
    lines = [json.loads(line) for line in found.splitlines()]
    expect([(line["tokens"] > 0, line["finish"] == "full", line["text"] == "") for line in lines]
           == [(True, False, False), (False, True, True)], found)
    expect(f"{prompts}: line 3" in said, said)
    # A single prompt: 64 tokens after the document token, or one less, fill all positions.
    for words in (63, 64):
        found, said = run("generate", FIXTURE, "--prompt", "-" * words, "--device", "cpu", code=64)
        expect(says("generate.full", tokens=words + 1, positions=64) in said and found == "", f"{found} {said}")


def check_odd_lines(folder):
    """An irregular line is accepted and counted."""
    prompts = folder / "odd.jsonl"
    prompts.write_text('{"prompt": "A man", "score": NaN}\n{"prompt": "A\\ud800", "x": [-Infinity]}\n')
    found, said = run("generate", FIXTURE, "--prompt-file", prompts, "--device", "cpu", "--tokens", "2")
    expect([json.loads(line)["prompt"] for line in found.splitlines()] == ["A man", "A\ufffd"], found)
    expect(says("unicode.one") in said and says("json.not_finite", count=2) in said, said)
    text = folder / "odd.txt"
    text.write_bytes(b"A \xff man\xc3")
    found, said = run("generate", FIXTURE, "--prompt-file", text, "--device", "cpu", "--tokens", "2")
    expect(f"{says('unicode.many', count=2)} {text}: byte 2" in said, said)
    questions = [json.loads(line) for line in (FIXTURE / "questions.jsonl").read_text().splitlines()]
    lines = [json.dumps(question | {"score": float("nan"), "note": "\ud800"}) for question in questions]
    lines.insert(2, json.dumps(dict(context="", choices=["x", "<|endoftext|>"], label=0, id="none")))
    path, out = folder / "odd_questions.jsonl", folder / "odd_records.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    found, said = run("eval", FIXTURE, "--choices", path, "--out", out, "--device", "cpu")
    expected = json.loads((FIXTURE / "expected.json").read_text())
    found = json.loads(found)
    expect(found["skipped"] == 1 and found["questions"] == len(questions), str(found))
    expect(all(abs(found[key] - expected[key]) < 1e-9 for key in ("acc", "acc_norm", "acc_stderr")), str(found))
    no_token = says("eval.no_token", number=1)
    expect(f"{says('eval.skipped', questions=len(questions) + 1)} {path}: line 3: {no_token}" in said, said)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    expect(records[2] == {"id": "none", "label": 0, "skipped": no_token} and len(records) == len(lines), str(records[2]))


def check_generate(folder):
    prompts = folder / "prompts.jsonl"
    asked = ["A man", "", "The suitcase is too large and the dog runs over the field", "\u6c34"]
    prompts.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in asked))
    generate = ["generate", FIXTURE, "--prompt-file", prompts, "--tokens", "20", "--seed", "3",
                "--device", "cpu"]
    expected, said = run(*generate, "--batch", "1")
    expect(re.search(pattern("generate.speed"), said), said)
    lines = [json.loads(line) for line in expected.splitlines()]
    expect([line["prompt"] for line in lines] == asked, expected)
    expect(all(line["finish"] in ("end", "length") for line in lines), expected)
    for ranks, flags in layouts():
        if ranks == 2 and not flags:
            continue
        found, _ = run(*generate, "--batch", "3", *flags, ranks=ranks)
        expect(found == expected, f"{ranks} {flags}: {found}, expected {expected}")
    # Three letters of a text, not its first ones; tokens have one or two.
    stop = next(found[-1] for found in (re.findall(r"[a-z]{3}", line["text"]) for line in lines)
                if found)
    found, _ = run(*generate, "--stop", stop, "--stop", "\u0001never")
    for line in map(json.loads, found.splitlines()):
        whole = next(l["text"] for l in lines if l["prompt"] == line["prompt"])
        expect(line["text"] == whole.split(stop)[0], f"{line} of {whole!r} at {stop!r}")
        expect((line["finish"] == "stop") == (stop in whole), f"{line}")
    one = folder / "one.txt"
    one.write_text(asked[2])
    found, _ = run("generate", FIXTURE, "--prompt-file", one, "--tokens", "5", "--device", "cpu")
    expect(found.startswith(asked[2]), found)


TO_FULL = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); os.execv(sys.argv[1], sys.argv[1:])"
TO_NOBODY = """import os, signal, sys
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def check_output(folder):
    """If standard output cannot be written, all ranks abort together within seconds and report the reason."""
    prompts = folder / "two.jsonl"
    prompts.write_text('{"prompt": "A man"}\n{"prompt": "The dog"}\n')
    for ranks, flags in layouts():
        if ranks == 2:
            continue
        for asked in (["--prompt", "A man"], ["--prompt-file", prompts, "--batch", "1"]):
            generate = ["generate", FIXTURE, *asked, "--tokens", "20", "--device", "cpu", *flags]
            check_ended(TO_FULL, generate, ranks, "No space left on device")
            if ranks > 1:
                check_ended(TO_NOBODY, generate, ranks, "Broken pipe")
    # A single rank ends like any other program.
    done = run_to(TO_NOBODY, ["generate", FIXTURE, "--prompt", "A man", "--device", "cpu"], 1)
    expect((done.returncode, done.stderr) == (-signal.SIGPIPE, b""), str(done))


def run_to(output, arguments, ranks):
    command = [sys.executable, "-c", output, LOCKSTEP, *map(str, arguments)]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    return subprocess.run(command, **ALONE, capture_output=True, timeout=240, check=False)


def check_ended(output, arguments, ranks, why):
    done = run_to(output, arguments, ranks)
    said = done.stderr.decode(errors="replace")
    what = f"{arguments} on {ranks}: {done.returncode}: {said[-1500:]}"
    expect(done.returncode == 74, what)
    expect(says("output.cannot_write", why=why) in said, what)
    expect(says("end.died") not in said and not re.search(pattern("generate.speed"), said), what)


CONFIG = """
[train]
steps = 2
batch_tokens = 128
sequence_length = 32
init_from = "{model}"
[data]
train = ["{data}"]
[log]
tensorboard = false
sample_every_steps = 1
sample_prompt = "A dog"
sample_tokens = 8
"""


def check_tokenizer(folder):
    """A tokenizer is copied from the model to the run, and to its export."""
    rng = random.Random(2)
    tokens = [rng.randrange(400) for _ in range(2000)]
    header = struct.pack("<3i", 20240520, 1, len(tokens)).ljust(1024, b"\0")
    (folder / "tokens.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))
    table, _ = run("config", "--model", FIXTURE)
    config = folder / "config.toml"
    config.write_text(table + CONFIG.format(model=FIXTURE, data=folder / "tokens.bin"))
    _, said = run("train", config, "--run", folder / "run", "--device", "cpu")
    expect(f"{says('train.sample', step=2)} A dog" in said, said)
    expect(said.count(says("data.ids_of_format", file="tokens.bin", format="llm.c GPT-2", most=50256)) == 1, said)
    kept = folder / "run" / "tokenizer" / "tokenizer.json"
    expect(kept.exists() and kept.read_bytes() == (FIXTURE / "tokenizer.json").read_bytes(), "kept")
    found, _ = run("generate", folder / "run", "--prompt", "The", "--tokens", "4", "--device", "cpu")
    expect(found.startswith("The"), found)
    found, _ = run("eval", folder / "run", "--data", folder / "tokens.bin", "--device", "cpu",
                   "--sequence-length", "32")
    found = json.loads(found)
    expect(found.get("sequence_length") == 32, str(found))
    by_byte = found["loss_nats"] * found["tokens"] / found["bytes"]
    expect(abs(found["bits_per_byte"] * 0.6931471805599453 - by_byte) < 1e-9, str(found))
    run("checkpoint", "export", folder / "run", "--out", folder / "out", "--dtype", "fp32")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        expect((folder / "out" / name).read_bytes() == (FIXTURE / name).read_bytes(), name)
    run("checkpoint", "import", folder / "out", "--out", folder / "imported")
    expect((folder / "imported/tokenizer/tokenizer.json").exists(), "imported")
    # Without a tokenizer, text is rejected, but tokens are accepted.
    shutil.rmtree(folder / "run" / "tokenizer")
    _, said = run("generate", folder / "run", "--prompt", "x", "--device", "cpu", code=64)
    expect("--tokenizer" in said, said)
    run("generate", folder / "run", "--prompt", "x", "--tokens", "2", "--device", "cpu",
        "--tokenizer", FIXTURE)
    found, _ = run("eval", folder / "run", "--data", folder / "tokens.bin", "--device", "cpu")
    expect_no_bytes(found)
    run("train", config, "--run", folder / "none", "--device", "cpu", "--set", "train.init_from=",
        "--set", "log.sample_every_steps=0")
    expect((folder / "none/checkpoints").exists(), "trained without a tokenizer")
    expect(not (folder / "none/tokenizer").exists(), "none is kept")
    # The tokenizer of the data is missing.
    (folder / "lost.txt").write_text("a man and a dog " * 300)
    run("data", "pack", folder / "lost.txt", "--tokenizer", FIXTURE, "--out", folder / "lost")
    (folder / "lost" / "tokenizer.json").unlink()
    found, said = run("data", "verify", folder / "lost", code=65)
    expect("tokenizer.json: " in said and "DAMAGED" in found, said)
    _, said = run("train", config, "--run", folder / "lost_run", "--device", "cpu", "--set", "train.init_from=",
                  "--set", "log.sample_every_steps=0", "--set", f"data.train={folder / 'lost'}")
    expect(said.count(says("train.no_tokenizer")) == 1, said)


def expect_no_bytes(found):
    """The result of `eval --data` has all figures except those per byte."""
    found = json.loads(found)
    expect(all(found.get(key, 0) is None for key in ("bytes", "bits_per_byte", "byte_perplexity")), str(found))
    expect(all(found.get(key, 0) > 0 for key in ("loss_nats", "perplexity", "tokens", "sequence_length")), str(found))


def check_other_tokenizer(folder):
    """Data that were packed with another tokenizer than that of the model are reported."""
    other = folder / "other"
    other.mkdir()
    text = (FIXTURE / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text + "\n")  # another hash
    (folder / "other.txt").write_text("a man and a dog " * 300)
    for tokenizer, name in ((other, "other_data"), (FIXTURE, "same_data")):
        run("data", "pack", folder / "other.txt", "--tokenizer", tokenizer, "--out", folder / name)
    hashes = [json.loads((folder / name / "dataset.json").read_text())["tokenizer_xxh3_128"]
              for name in ("other_data", "same_data")]
    table, _ = run("config", "--model", FIXTURE)
    config = folder / "other.toml"
    config.write_text(table + CONFIG.format(model=FIXTURE, data=folder / "other_data"))
    warning, another = f"train.init_from: {FIXTURE} ", says("tokenizer.another")
    train = ["train", config, "--device", "cpu", "--extend", "--run"]
    for ranks, name in ((1, "other_run"), (2, "other_ranks")) if len(layouts()) > 1 else ((1, "other_run"),):
        _, said = run(*train, folder / name, ranks=ranks)
        expect(said.count(warning) == 1 and said.count(another) == 1, said)
        expect(all(one in said for one in (*hashes, f"--tokenizer {FIXTURE}")), said)
    _, said = run(*train, folder / "other_run", "--set", "train.steps=3")
    expect(says("train.goes_on", step=2) in said and another not in said, said)
    _, said = run(*train, folder / "same_run", "--set", f"data.train={folder / 'same_data'}")
    expect(another not in said, said)
    _, said = run(*train, folder / "other_run", "--set", "train.steps=4", "--allow-dataset-change", "--set",
                  f"data.train={folder / 'same_data'}")
    expect(says("train.not_of_tokenizer") in said, said)
    # If the data have no tokenizer file, the run has the tokenizer of the model.
    (folder / "other_data" / "tokenizer.json").unlink()
    _, said = run(*train, folder / "lone_run")
    expect(said.count(warning) == 1 and says("train.not_of_tokenizer") not in said, said)

    evaluate = ["eval", FIXTURE, "--device", "cpu", "--sequence-length", "32", "--data"]
    for ranks, flags in layouts()[:2]:
        found, said = run(*evaluate, folder / "other_data", *flags, ranks=ranks)
        expect_no_bytes(found)
        expect(said.count(another) == 1 and all(one in said for one in (*hashes, str(folder / "other_data"))), said)
    found, said = run(*evaluate, folder / "other_data", "--tokenizer", other)
    expect(json.loads(found)["bytes"] > 0 and another not in said, f"{found} {said}")
    found, said = run(*evaluate, folder / "same_data")
    expect(json.loads(found)["bytes"] > 0 and another not in said, f"{found} {said}")


def check_unusable_tokenizer(folder):
    """Commands that only count bytes or show text work with an unusable tokenizer."""
    model = folder / "unusable"
    shutil.copytree(FIXTURE, model)
    data = folder / "unusable_data"
    (folder / "words.txt").write_text("a man and a dog " * 300)
    run("data", "pack", folder / "words.txt", "--tokenizer", FIXTURE, "--out", data)
    for place in (model, data):
        (place / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": [["a", 0]]}}')
    evaluate = ["eval", model, "--data", data, "--device", "cpu", "--sequence-length", "32"]
    for ranks, flags in layouts()[:2]:
        found, said = run(*evaluate, *flags, ranks=ranks)
        expect_no_bytes(found)
        expect("tokenizer.json" in said, said)
    run(*evaluate, "--tokenizer", model, code=65)
    found, said = run("data", "inspect", data, "--count", "3")
    expect("tokenizer.json" in said, said)
    expect(re.search(r"\n\[?\d+\]?\s+\d+ \d+ ", found), found)
    run("data", "inspect", data, "--tokenizer", data, code=65)
    _, said = run("data", "inspect", data, "--tokenizer", "bytes", code=64)
    expect("257" in said, said)


def check_rows(folder):
    """eval RUN equals the validation of the run, with the rows of its training data."""
    rng = random.Random(4)
    words = [rng.choice(["dog", "cat", "runs", "over the field", "A man"]) for _ in range(4000)]
    (folder / "pairs.jsonl").write_text("".join(
        json.dumps({"q": " ".join(words[i:i + 5]), "a": words[i + 5]}) + "\n"
        for i in range(0, 3990, 6)))
    (folder / "texts.txt").write_text("\n\n".join(
        " ".join(words[i:i + 1 + i % 13]) for i in range(0, 1500, 13)))
    run("data", "pack", folder / "pairs.jsonl", "--prompt-field", "q", "--response-field", "a",
        "--tokenizer", FIXTURE, "--out", folder / "masked")
    run("data", "pack", folder / "texts.txt", "--document-separator", r"\n\n", "--tokenizer", FIXTURE,
        "--out", folder / "unmasked")
    table, _ = run("config", "--model", FIXTURE)
    config = folder / "rows.toml"
    config.write_text(table + CONFIG.format(model=FIXTURE, data=folder / "masked").replace(
        "[log]", f'validation = ["{folder / "unmasked"}"]\n[eval]\ntokens = 0\n[log]'))
    run("train", config, "--run", folder / "rows", "--device", "cpu")
    last = json.loads((folder / "rows" / "metrics.jsonl").read_text().splitlines()[-1])
    found, _ = run("eval", folder / "rows", "--device", "cpu")
    expect(abs(json.loads(found)["loss_nats"] - last["validation_loss"]) < 1e-5, f"{found}: {last}")


SPACES = """
[model]
family = "llama3"
layers = 1
width = 32
heads = 2
mlp_width = 32
vocabulary = 1024
max_positions = 64
[train]
steps = 1
batch_tokens = 64
sequence_length = 32
[data]
train = "{data}"
"""


def check_spaces(folder):
    """If a tokenizer puts a space before a text, the space is neither printed nor counted as a byte."""
    tokenizer = folder / "mistral"
    shutil.copytree(pathlib.Path(__file__).parents[1] / "data/tokenizers/mistral", tokenizer)
    (tokenizer / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    texts = ["A dog and a man", "the end of it", "in the year"] * 32
    (folder / "spaces.txt").write_text("\n\n".join(texts))
    run("data", "pack", folder / "spaces.txt", "--document-separator", r"\n\n", "--tokenizer", tokenizer,
        "--out", folder / "spaces")
    config = folder / "spaces.toml"
    config.write_text(SPACES.format(data=folder / "spaces"))
    run("train", config, "--run", folder / "spaces-run", "--device", "cpu")
    # Windows have all tokens. The first document token is not a target, so one space is counted.
    tokens = json.loads((folder / "spaces/dataset.json").read_text())["shards"][0]["tokens"]
    found, _ = run("eval", folder / "spaces-run", "--data", folder / "spaces", "--device", "cpu", "--sequence-length", "3",
                   "--tokens", "0")
    found = json.loads(found)
    whole = (tokens - 1) // 3 * 3 == tokens - 1
    expect(found["tokens"] == tokens - 1 and whole, f"{found} of {tokens} tokens: choose a length that divides")
    expect(found["bytes"] == sum(map(len, texts)) + 1, f"{found}: expected {sum(map(len, texts)) + 1} bytes")
    # After an empty prompt the text begins without the space; after other prompts it continues.
    prompts = folder / "spaces.jsonl"
    prompts.write_text('{"prompt": ""}\n{"prompt": "A"}\n' * 40)
    found, _ = run("generate", folder / "spaces-run", "--prompt-file", prompts, "--tokens", "1", "--device", "cpu",
                   "--temperature", "2")
    found = [json.loads(line) for line in found.splitlines()]
    expect(not any(one["text"].startswith(" ") for one in found if one["prompt"] == ""), str(found))
    expect(any(one["text"].startswith(" ") for one in found if one["prompt"] == "A"), str(found))


def main():
    with tempfile.TemporaryDirectory() as name:
        for check in (check_choices, check_table, check_refusals, check_odd_lines, check_generate,
                      check_output, check_tokenizer, check_other_tokenizer, check_unusable_tokenizer, check_rows,
                      check_spaces):
            check(pathlib.Path(name))
    print(len(failures), "failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
