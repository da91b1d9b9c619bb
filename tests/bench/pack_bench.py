#!/usr/bin/env python3
"""Bytes of text a second that `lockstep data pack` makes tokens of: text and JSON lines, plain, gzip, zstd (where the
program is), by one thread and by all, each the best of rounds that take turns.

usage: pack_bench.py LOCKSTEP TEXT [--tokenizer PATH] [--other LOCKSTEP] [--rounds N]

TEXT: documents with empty lines between them; some hundred MB. --other: another build, in the same rounds.
"""

import argparse
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


def inputs(text, folder):
    """What is packed: name -> options."""
    lines = folder / "lines.jsonl"
    with open(lines, "w", encoding="utf-8") as file:
        for document in text.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            file.write(json.dumps({"id": 1, "text": document}) + "\n")
    separated = ["--document-separator", r"\n\n"]
    made = {"text, one document": [text], "text, paragraphs": [text, *separated], "JSON lines": [lines]}
    for name, path in (("text", text), ("JSON lines", lines)):
        small = folder / (path.name + ".gz")
        with gzip.open(small, "wb", 6) as file:
            file.write(path.read_bytes())
        made[name + ", gzip"] = [small, *(separated if path == text else [])]
        if shutil.which("zstd"):
            small = folder / (path.name + ".zst")
            subprocess.run(["zstd", "-q", str(path), "-o", str(small)], check=True)
            made[name + ", zstd"] = [small, *(separated if path == text else [])]
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--other")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    size = args.text.stat().st_size / 1e6
    with tempfile.TemporaryDirectory(dir=args.text.parent) as folder:
        folder = pathlib.Path(folder)
        for name, options in inputs(args.text, folder).items():
            best = {}
            for _ in range(args.rounds):
                for program in filter(None, (args.lockstep, args.other)):
                    for threads in (["1", str(os.cpu_count())] if program == args.lockstep else [""]):
                        command = [program, "data", "pack", *map(str, options), "--tokenizer", args.tokenizer, "--out",
                                   str(folder / "out"), *(["--threads", threads] if threads else [])]
                        begin = time.monotonic()
                        done = subprocess.run(command, capture_output=True)
                        seconds = time.monotonic() - begin
                        if done.returncode == 0:
                            key = f"{threads} threads" if threads else "other"
                            best[key] = min(best.get(key, seconds), seconds)
                            shutil.rmtree(folder / "out")
            print(f"{name:22}", "  ".join(f"{key}: {size / seconds:7.1f} MB/s" for key, seconds in best.items()), flush=True)


if __name__ == "__main__":
    main()
