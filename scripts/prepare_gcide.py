#!/usr/bin/env python3
"""Converts the English dictionary of Debian's dict-gcide into training and validation text.

usage: prepare_gcide.py gcide.dict.dz DIRECTORY

Removes the preamble and the [1913 Webster] tags, and converts the few Latin-1 bytes to UTF-8. Every
20th block of 64 KiB goes to DIRECTORY/validation.txt, the others go to DIRECTORY/train.txt. The same
dictionary gives the same bytes.
"""

import codecs
import gzip
import hashlib
import pathlib
import re
import sys
import zlib

FIRST_ENTRY = b"\n0 \\0\\ adj.\n"
TAG = b"[1913 Webster]"
# The bytes that are not UTF-8, and their characters, which follow from the words around them.
LATIN = {0x92: "'", 0xB9: "'", 0xE7: "\u00e7"}
BLOCK_BYTES = 64 * 1024
HELD_OUT_EVERY = 20

# gcide.dict.dz of Debian 12 (dict-gcide 0.48.5+nmu2), and bytes and SHA-256 of the two results.
KNOWN_SOURCE = "3e6b2cdcbc1b3664c2f1466e3c8e44012e815c4c67fa83fa61f39777cd6e8517"
KNOWN = {
    "train.txt":
        (34150424, "80d4e96d4a8056c17b3d3989145fdcbe5907bebc126e885a2cf2a056de336040"),
    "validation.txt":
        (1769472, "d64b0509dd7297c8576aea5d7da2cc7be247c65a698ae0343faacfd06375d83f"),
}


def mend(error):
    """Replaces one byte that is not UTF-8. It is an error handler of a decoder."""
    byte = error.object[error.start]
    if byte not in LATIN:
        raise SystemExit(f"byte {byte:#x} at {error.start} is not UTF-8 and has no replacement")
    return LATIN[byte], error.start + 1


def clean(text):
    """Returns the entries alone, as UTF-8 bytes."""
    start = text.find(FIRST_ENTRY)
    if start < 0:
        raise SystemExit("not the expected dictionary: no entry '0 \\0\\ adj.'")
    text = text[start + 1:]
    tag = re.escape(TAG)
    text = re.sub(rb"\n *" + tag + rb"(?=\n)", b"", text)  # alone on a line: remove the line
    text = text.replace(TAG + b" ", b"")                   # before text: remove the space too
    text = re.sub(rb" *" + tag, b"", text)
    codecs.register_error("mend", mend)
    return text.decode("utf-8", errors="mend").encode("utf-8")


def split(text):
    """Returns (training text, validation text)."""
    blocks = [text[at:at + BLOCK_BYTES] for at in range(0, len(text), BLOCK_BYTES)]
    held_out = blocks[HELD_OUT_EVERY - 1::HELD_OUT_EVERY]
    del blocks[HELD_OUT_EVERY - 1::HELD_OUT_EVERY]
    return b"".join(blocks), b"".join(held_out)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def main(source, directory):
    try:
        packed = pathlib.Path(source).read_bytes()
        text = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise SystemExit(f"cannot read {source}: {error}") from error
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in zip(("train.txt", "validation.txt"), split(clean(text))):
        found = (len(data), sha256(data))
        if sha256(packed) == KNOWN_SOURCE and found != KNOWN[name]:
            raise SystemExit(f"{name}: expected bytes and SHA-256 {KNOWN[name]}, got {found}")
        unfinished = directory / (name + ".tmp")
        unfinished.write_bytes(data)
        unfinished.rename(directory / name)
        print(f"{directory / name}: {found[0]} bytes, SHA-256 {found[1]}")
    if sha256(packed) != KNOWN_SOURCE:
        print("note: this is another version of the dictionary than that of Debian 12; "
              "losses differ slightly")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
