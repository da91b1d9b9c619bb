"""The tokenizer of an exported byte-level model in `transformers`."""

import random

import transformers

from lockstep import write_toml


def drawn(rng):
    """A text of any characters, mostly with few bytes."""
    codes = [rng.randrange(rng.choice([0x80, 0x800, 0x110000])) for _ in range(rng.randrange(60))]
    return "".join(chr(code) for code in codes if not 0xd800 <= code < 0xe000)


def check(report, seed, folder, lockstep):
    """Its ids are the bytes of a text, and it decodes them; in front it puts the document token 256."""
    rng = random.Random(seed)
    folder.mkdir()
    texts = [drawn(rng) for _ in range(500)] + ["<|endoftext|>a", " a  b\n\n ", "don 't , . ?", ""]
    (folder / "text.txt").write_text("\n".join(texts * 4))
    lockstep("data", "pack", folder / "text.txt", "--out", folder / "data")
    write_toml(folder / "run.toml", {
        "model": {"family": "llama3", "layers": 1, "width": 8, "heads": 1, "mlp_width": 8, "vocabulary": 257},
        "train": {"steps": 1, "batch_tokens": 16, "sequence_length": 16},
        "data": {"train": [str(folder / "data")]}})
    lockstep("train", folder / "run.toml", "--run", folder / "run", "--device", lockstep.device)
    lockstep.export(folder / "run", folder / "out", "bf16")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "out")
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    report.check("bytes: transformers gives the bytes of a text",
                 ids == [list(text.encode()) for text in texts])
    report.check("bytes: transformers decodes them", [tokenizer.decode(i) for i in ids] == texts)
    report.check("bytes: transformers puts the document token in front",
                 tokenizer(texts)["input_ids"] == [[256, *i] for i in ids])
    report.check("bytes: the document token ends a text", (tokenizer.eos_token_id, len(tokenizer)) == (256, 257))
