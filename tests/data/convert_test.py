#!/usr/bin/env python3
"""`lockstep data convert` from every format that is read to every one that is written.

usage: convert_test.py LOCKSTEP

What goes in and what comes out is written and read by shard_formats.py, which knows nothing of the
program. Documents are compared without the one token that tells them apart.
"""

import pathlib
import random
import re
import subprocess
import sys
import tempfile

import shard_formats as formats

BOUNDARY = 50256


def texts(rng, count, ids):
    return [[rng.randrange(ids) for _ in range(rng.randrange(1, 60))] for _ in range(count)]


def stripped(documents, boundary=BOUNDARY):
    return [[token for token in document if token != boundary] for document in documents]


def lockstep(program, *arguments):
    done = subprocess.run([program, "data", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr, done.stdout)
    return done.stdout


READERS = {"llmc": formats.read_llmc, "nanogpt": formats.read_nanogpt,
           "megatron": formats.read_megatron, "datatrove": formats.read_datatrove,
           "lockstep": formats.read_lockstep}


def check(program, folder, name, write, documents, targets, boundary=BOUNDARY):
    source = folder / name
    source.mkdir()
    write(source, documents)
    lockstep(program, "verify", source)
    for target in targets:
        out = folder / f"{name}-{target}"
        said = lockstep(program, "convert", source, "--to", target, "--out", out,
                        "--shard-tokens", 1000)
        assert str(len(documents)) in re.findall(r"\d+", said), said
        lockstep(program, "verify", out)
        found = stripped(READERS[target](out), boundary)
        assert found == stripped(documents, boundary), f"{name} to {target}"
        print(f"{name} to {target}: {len(documents)} documents")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    rng = random.Random(7)
    documents = texts(rng, 150, BOUNDARY)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        sources = {"from_llmc": formats.write_llmc, "from_nanogpt": formats.write_nanogpt,
                   "from_megatron": formats.write_megatron,
                   "from_datatrove": formats.write_datatrove,
                   "from_megatron_i64": lambda to, what: formats.write_megatron(to, what, 5),
                   "from_datatrove_u32": lambda to, what: formats.write_datatrove(to, what, "I")}
        for name, write in sources.items():
            check(program, folder, name, write, documents, READERS)
        # More ids than u16 has, below Llama 3's 128000, which is between documents.
        large = texts(rng, 80, 128000)
        large[0] = [127999]
        READERS["llmc"] = lambda to: formats.read_llmc(to, 128000)
        for name, write in {
                "large_llmc": lambda to, what: formats.write_llmc(to, what, 128000),
                "large_megatron": lambda to, what: formats.write_megatron(to, what, 4),
                "large_datatrove": lambda to, what: formats.write_datatrove(to, what, "I")}.items():
            check(program, folder, name, write, large, ("llmc", "megatron", "datatrove", "lockstep"), 128000)


if __name__ == "__main__":
    main()
