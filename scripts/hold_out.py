#!/usr/bin/env python3
"""Splits texts into training and validation text, whatever they are made of.

usage: hold_out.py DIRECTORY TEXT...

Writes DIRECTORY/train.txt and DIRECTORY/validation.txt: the bytes of the files (a directory: all files
below it, hidden ones left out), one behind the other, every 20th 64 KiB held out; of a text that has
not 20 such blocks, its 20th twentieth. Exits with 65 if there is too little text, with 77 if this user may
not read or write a file, and with 74 if the disk is full or fails.
"""

import os
import pathlib
import sys

from prepare_gcide import BLOCK_BYTES, HELD_OUT_EVERY

LEAST_BYTES = 32 * 1024  # then six windows of 256 bytes are held out
DATA_ERROR, STORAGE_ERROR, REFUSED = 65, 74, 77


class NoText(Exception):
    """What keeps the texts from being split."""


def raise_error(error):
    raise error


def files_of(paths):
    """Every file, in the order of the paths and of the names below them."""
    for path in map(pathlib.Path, paths):
        if not path.is_dir():
            if not path.is_file():
                raise NoText(f"{path}: expected a file or a directory")
            yield path
            continue
        for directory, names, files in os.walk(path, onerror=raise_error):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                file = pathlib.Path(directory, name)
                if not name.startswith(".") and file.is_file():
                    yield file


def blocks_of(files, size):
    """The bytes of all files in blocks of `size`; the last may be shorter."""
    block = bytearray()
    for file in files:
        with open(file, "rb") as text:
            while piece := text.read(size - len(block)):
                block += piece
                if len(block) == size:
                    yield block
                    block = bytearray()
    if block:
        yield block


def split(directory, paths):
    """Writes both files; returns their sizes."""
    files = list(files_of(paths))
    total = sum(file.stat().st_size for file in files)
    if total < LEAST_BYTES:
        raise NoText(f"{', '.join(paths)}: {total} bytes of text; to train on some and hold out the "
                     f"rest takes at least {LEAST_BYTES}")
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "train.txt", "wb") as train, \
            open(directory / "validation.txt", "wb") as validation:
        for i, block in enumerate(blocks_of(files, min(BLOCK_BYTES, total // HELD_OUT_EVERY))):
            (validation if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else train).write(block)
        return train.tell(), validation.tell()


def main(directory, *paths):
    try:
        sizes = split(pathlib.Path(directory), paths)
    except (NoText, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED if isinstance(error, PermissionError) else
                 STORAGE_ERROR if isinstance(error, OSError) else DATA_ERROR)
    print("{} bytes to train on, {} held out".format(*sizes))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
