#!/usr/bin/env python3
"""Compares Lockstep's tokenizer with the package `tokenizers`, id for id.

    tokenizers_agree.py PROGRAM [--texts N] [--seed S]
    tokenizers_agree.py --fixtures DIR

Published tokenizers are not at hand, so tokenizers are trained here under the exact settings of each
family, on this repository's documents and a sentence in many languages. PROGRAM is tests/tokenize. The
texts: random ones of many kinds (N of each family), blocks of Unicode, long words and runs of spaces, invalid
UTF-8; from N = 10,000 on every block, and words of a megabyte. With --fixtures small tokenizers, and what they make of a few texts, are written
for tests that have no such package.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ByteLevel = pre_tokenizers.ByteLevel

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")

# Article 1 of the Universal Declaration of Human Rights, and other short texts.
LANGUAGES = """
All human beings are born free and equal in dignity and rights.
Tous les êtres humains naissent libres et égaux en dignité et en droits.
Alle Menschen sind frei und gleich an Würde und Rechten geboren.
Todos los seres humanos nacen libres e iguales en dignidad y derechos.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.
Все люди рождаются свободными и равными в своем достоинстве и правах.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
人人生而自由,在尊严和权利上一律平等。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար՝ իրենց արժանապատվությամբ ու իրավունքներով։
👩‍👩‍👧‍👦 🇩🇪 1️⃣ naïve Å Å ﬁ ½ ² Ⅳ ߀ ١٢٣ १२३
"""


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    ByteLevel(add_prefix_space=False, use_regex=False)])


def plain(text, special=True, **settings):
    return AddedToken(text, normalized=False, special=special, **settings)


# normalizer, pre_tokenizer, ignore_merges, added tokens
FAMILIES = {
    "gpt2": (None, ByteLevel(add_prefix_space=False), False, [plain("<|endoftext|>")]),
    "llama3": (None, split(LLAMA), True,
               [plain("<|begin_of_text|>"), plain("<|end_of_text|>"), plain("<|eot_id|>")]),
    "qwen3": (normalizers.NFC(), split(QWEN), False,
              [plain("<|endoftext|>"), plain("<|im_start|>"), plain("<|im_end|>"), plain("<think>", False)]),
    "smollm2": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               ByteLevel(add_prefix_space=False)]), False,
                [plain("<|endoftext|>"), plain("<|im_start|>")]),
    "smollm3": (None, split(LLAMA), True,
                [plain("<|begin_of_text|>"), plain("<|im_end|>"), plain("<think>", False)]),
    # What the others do not have.
    "other": (normalizers.Sequence([normalizers.NFKD(), normalizers.NFC()]),
              pre_tokenizers.Sequence([pre_tokenizers.Split("->", "removed"), ByteLevel(add_prefix_space=True)]), False,
              [plain("<mask>", lstrip=True), plain("<r>", rstrip=True), plain("lone", single_word=True),
               AddedToken("ﬁn", normalized=True, special=False), plain("<|a|>"), plain("<|a|>b")]),
}


def corpus():
    documents = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))]
    return documents + [LANGUAGES] * 4


def trained(name, vocabulary):
    normalizer, pre_tokenizer, ignore_merges, added = FAMILIES[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False,
                                  initial_alphabet=ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    return tokenizer


class Texts:
    """Random texts: pieces of real text, of blocks of Unicode, of what tokenizers stumble over."""

    PIECES = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<think>", "<mask>", "<r>", "lone",
              "alone", "loner", "ﬁn", "<|a|>", "<|a|>b", "<|", "|>", "<", ">", "'s", "'LL", "'", "'ſ", " ", "  ", "\n",
              "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b", "\x1c", "\x85", "e\u0301", "\u0301",
              "A\u030a", "가", "ᄀ\u1161", "ß", "İ", "1", "12", "1234", "٣", "Ⅷ", "½", "the", " the", "Lockstep",
              "-", "->", "...", "_", "\u200d", "👩\u200d👧", "\U0001f1e9\U0001f1ea", "\u0e33", "\ufb01", "\ufffd", "\ufeff",
              "\u0345\u0301", "a\u0323\u0307"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.text = "\n\n".join(corpus())

    def character(self):
        while True:
            kind = self.random.random()
            code = (self.random.randrange(1, 0x80) if kind < 0.4 else self.random.randrange(0x80, 0x800) if kind < 0.6
                    else self.random.randrange(0x800, 0x10000) if kind < 0.8 else self.random.randrange(0x10000, 0x110000))
            if not 0xd800 <= code < 0xe000:
                return chr(code)

    def draw(self):
        kind = self.random.random()
        if kind < 0.3:
            begin = self.random.randrange(len(self.text) - 300)
            return self.text[begin:begin + self.random.randrange(1, 300)]
        if kind < 0.5:
            return "".join(self.character() for _ in range(self.random.randrange(1, 30)))
        if kind < 0.6:
            base = self.random.randrange(1, 0x1100) * 16
            codes = (self.random.randrange(base, base + 64) for _ in range(self.random.randrange(1, 20)))
            return "".join(chr(code) for code in codes if not 0xd800 <= code < 0xe000 and code < 0x110000) or "-"
        return "".join(self.random.choice(self.PIECES) for _ in range(self.random.randrange(1, 12)))


def fixed_texts(thorough):
    blocks = ["".join(chr(code) for code in range(base, base + 64) if not 0xd800 <= code < 0xe000)
              for base in range(64, 0x110000, 64 if thorough else 640)]
    mega = 1 << (20 if thorough else 16)
    return ([block for block in blocks if block]
            + ["a" * mega, " " * mega, "ab" * (mega // 2) + "\n" * 1000, "\n" * mega, "é" * (mega // 2), "<|" * (mega // 2),
               "1234567890" * (mega // 10), ("word " * (mega // 5)), LANGUAGES * 20])


def invalid_texts(rng, count):
    """Bytes that are no UTF-8; what counts is their text with U+FFFD, as Python replaces it."""
    for _ in range(count):
        yield bytes(rng.choice([rng.randrange(256), 0x41, 0x20, 0xe2, 0x82, 0xf0, 0x9f, 0xc3, 0xed, 0xa0])
                    for _ in range(rng.randrange(1, 24))).replace(b"\0", b"?")


def ids_of(program, path, documents):
    """By the program under test, which reads documents with a zero byte between them."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\0".join(documents))
        file.flush()
        done = subprocess.run([program, path, file.name], stdout=subprocess.PIPE, check=True, encoding="ascii")
    return [[int(word) for word in line.split()] for line in done.stdout.split("\n")[:-1]]


def is_of_newer_unicode(name, text):
    """Holds marks that the package's normal forms do not know, and Python's do, or neither (Unicode 15)."""
    forms = FAMILIES[name][0]
    if forms is None:
        return False
    decomposed = unicodedata.normalize("NFKD", text) if name == "other" else text
    return (forms.normalize_str(text) != unicodedata.normalize("NFC", decomposed)
            or any(unicodedata.category(character) == "Cn" for character in text))


def compare(name, program, count, seed):
    texts = Texts(seed)
    tokenizer = trained(name, 2000)
    documents = [text.replace("\0", "0").encode() 
                 for text in [texts.draw() for _ in range(count)] + fixed_texts(thorough=count >= 10000)]
    documents += list(invalid_texts(texts.random, max(count // 10, 100)))
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        tokenizer.save(file.name)
        found = ids_of(program, file.name, documents)
    plain_texts = [document.decode(errors="replace") for document in documents]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(plain_texts, add_special_tokens=False)]
    if len(found) != len(expected):
        sys.exit(f"{name}: {len(found)} lines of ids, expected {len(expected)}")
    differ = [i for i, ids in enumerate(expected) if found[i] != ids]
    newer = [i for i in differ if is_of_newer_unicode(name, plain_texts[i])]
    print(f"{name}: {len(documents)} texts, {len(differ) - len(newer)} differ; {len(newer)} with marks that the package's "
          f"Unicode orders otherwise", flush=True)
    for i in [i for i in differ if i not in newer][:5]:
        print(f"  {plain_texts[i][:80]!r}: expected {expected[i][:20]}, found {found[i][:20]}")
    # They are few, or this excuse hides something.
    return len(differ) == len(newer) and len(newer) <= 1 + len(documents) // 500


def write_fixtures(directory):
    texts = Texts(7)
    samples = [texts.draw().replace("\0", "0") for _ in range(120)] + LANGUAGES.strip().split("\n")
    samples += ["", " ", "a" * 3000, " " * 1000 + "x", "ab" * 1000]
    for name in FAMILIES:
        tokenizer = trained(name, 700)
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        usable = [text for text in samples if not is_of_newer_unicode(name, text)]
        rows = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in usable]
        for row in rows:
            row["decoded"] = tokenizer.decode(row["ids"], skip_special_tokens=False)
        lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
        (folder / "ids.json").write_text(f"[\n{lines}\n]\n", encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixtures", type=pathlib.Path)
    options = parser.parse_args()
    if options.fixtures:
        return write_fixtures(options.fixtures)
    agreed = [compare(name, options.program, options.texts, options.seed) for name in FAMILIES]
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
