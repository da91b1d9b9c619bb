#!/usr/bin/env python3
"""Prints data/tokenizer/unicode_classes.cpp: the characters whose general category Unicode 16 has and Unicode 14 lacks, and
those whose normal forms the package `tokenizers` lacks.

    pip install unicodedata2==16.0.0 fonttools==4.56.0 tokenizers==0.23.3
    python3.11 scripts/unicode_classes.py > data/tokenizer/unicode_classes.cpp

Python 3.11 has Unicode 14 itself, unicodedata2 16.0.0 has Unicode 16, fonttools 4.56.0 its scripts.
"""

import sys
import unicodedata

import unicodedata2
from fontTools.unicodedata import Scripts, script, script_name
from tokenizers import normalizers

OLDER, NEWER = "14.0.0", "16.0.0"
CODES = range(0x110000)


def runs(codes, key):
    """(first, last, key) of codes that follow one another and have the same key."""
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1 and found[-1][2] == key(code):
            found[-1][1] = code
        else:
            found.append([code, code, key(code)])
    return found


def row(first, last, *texts):
    return "{" + ", ".join([f"0x{first:x}", f"0x{last:x}", *(f'"{text}"' for text in texts)]) + "},"


def properties(code):
    character = chr(code)
    name = script_name(script(character)).lower().replace(" ", "")
    return unicodedata2.category(character), name, script(character).lower()


def without_forms():
    """Characters that `tokenizers` neither decomposes, composes nor orders, though Unicode 16 does."""
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
    found = set()
    for code in CODES:
        if 0xd800 <= code < 0xe000:
            continue
        character = chr(code)
        if nfkd.normalize_str(character) != unicodedata2.normalize("NFKD", character):
            found.add(code)
        moved = ["a" + character + "\u0334", "a\u0301" + character]
        if any(nfd.normalize_str(text) != unicodedata2.normalize("NFD", text) for text in moved):
            found.add(code)
        parts = unicodedata2.normalize("NFD", character)
        if unicodedata2.normalize("NFC", parts) == character != nfc.normalize_str(parts):
            found |= {code, ord(parts[0])}
    return sorted(found)


def lines(entries):
    line = "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > 100:
            yield line
            line = "   "
        line += " " + entry
    yield line


def main():
    assert (unicodedata.unidata_version, unicodedata2.unidata_version) == (OLDER, NEWER), "see the usage"
    with open(Scripts.__file__, encoding="utf-8") as file:
        assert f"Scripts-{NEWER}" in file.read(), "see the usage"
    newer = [code for code in CODES if unicodedata.category(chr(code)) != unicodedata2.category(chr(code))]
    unassigned = [code for code in CODES if unicodedata2.category(chr(code)) == "Cn"]
    print(f"""\
// Written by scripts/unicode_classes.py from Unicode {NEWER} and {OLDER}; change that.
#include "data/tokenizer/unicode_classes.h"

namespace lockstep {{
namespace {{

// clang-format off
constexpr NewerCharacters kNewer[] = {{""")
    for line in lines(row(first, last, *key) for first, last, key in runs(newer, properties)):
        print(line)
    print("""\
};
constexpr CodeRange kUnassigned[] = {""")
    for line in lines(row(first, last) for first, last, _ in runs(unassigned, lambda _: None)):
        print(line)
    print("""\
};
constexpr CodeRange kWithoutForms[] = {""")
    for line in lines(row(first, last) for first, last, _ in runs(without_forms(), lambda _: None)):
        print(line)
    print("""\
};
// clang-format on

}  // namespace

std::span<const NewerCharacters> newer_characters() {
  return kNewer;
}

std::span<const CodeRange> unassigned_characters() {
  return kUnassigned;
}

std::span<const CodeRange> characters_without_forms() {
  return kWithoutForms;
}

}  // namespace lockstep""")


if __name__ == "__main__":
    sys.exit(main())
