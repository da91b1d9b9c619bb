#!/usr/bin/env python3
"""Splits texts of any format into training and validation text.

usage: hold_out.py DIRECTORY TEXT...

Joins the bytes of all files, and cuts them into blocks of 64 KiB. Every 20th block goes to
DIRECTORY/validation.txt, the others go to DIRECTORY/train.txt. If the text is shorter than 20 blocks,
a block is a twentieth of the text. A directory stands for all files below it, except hidden ones.

Exit codes:
  65  there is too little text, or a path is neither a file nor a directory
  74  the disk is full or fails
  77  this user may not read or write a file
"""

import os
import pathlib
import sys

from prepare_gcide import BLOCK_BYTES, HELD_OUT_EVERY

LEAST_BYTES = 32 * 1024  # at least six windows of 256 bytes of these are held out
DATA_ERROR, STORAGE_ERROR, REFUSED = 65, 74, 77


class NoText(Exception):
    """The texts cannot be split."""


def raise_error(error):
    raise error


def files_of(paths):
    """Yields every file, in the order of the paths and of the names below them."""
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
    """Yields the bytes of all files in blocks of `size`; the last block may be shorter."""
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
        raise NoText(f"{', '.join(paths)}: {total} bytes of text, expected at least {LEAST_BYTES} "
                     "for training and validation")
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
    print("{} bytes of training text, {} bytes held out".format(*sizes))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
