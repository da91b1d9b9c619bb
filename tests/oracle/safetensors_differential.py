#!/usr/bin/env python3
"""Compares Lockstep's reader of safetensors with the `safetensors` package on damaged files.

usage: safetensors_differential.py VERDICT_PROGRAM [FILES [SEED]]      (needs safetensors; default 20000 1)

Both readers read files with random headers, most of which have one error. If Lockstep accepts a file, the
package must accept it with the same tensors. If only Lockstep refuses a file, the reason must be in
STRICTER: there Lockstep is stricter on purpose.
"""

import collections
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from safetensors import deserialize

SIZES = dict(BOOL=1, U8=1, I8=1, F8_E4M3=1, F8_E5M2=1, I16=2, U16=2, F16=2, BF16=2, I32=4, U32=4,
             F32=4, F64=8, I64=8, U64=8)
STRICTER = {
    "occurs twice": "duplicate keys: the package keeps the last",
    "at most 8 dimensions": "rank",
    "nested deeper than 4": "nesting in an unused key",
    "unknown dtype": "types newer than this reader",
    "does not start with '{'": "space before the header, against the specification",
    "__metadata__: expected an object, found null": "null for absent metadata",
}


def random_tensor(rng, end):
    dtype = rng.choice(list(SIZES))
    shape = [rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 9]))]
    size = SIZES[dtype]
    for n in shape:
        size *= n
    return dict(dtype=dtype, shape=shape, data_offsets=[end, end + size])


def spoil(rng, header, data):
    """Makes one change that breaks a rule, or none."""
    names = [k for k in header if k != "__metadata__"]
    entry = header[rng.choice(names)] if names else {}
    kind = rng.randrange(16)
    if kind == 0 and entry:
        entry["data_offsets"][rng.randrange(2)] += rng.choice([-1, 1, 8, -(1 << 40), 1 << 63])
    elif kind == 1 and entry:
        entry["shape"] = entry["shape"] + [rng.choice([0, 1, 2, -1, 1 << 62, 1 << 64, 1.0, "1"])]
    elif kind == 2 and entry:
        entry["dtype"] = rng.choice(["F31", "f32", "", None, 3, "F8_E8M0"])
    elif kind == 3 and entry:
        entry.pop(rng.choice(list(entry)))
    elif kind == 4 and entry:
        entry["extra"] = rng.choice([1, "x", [[[[1]]]]])
    elif kind == 5:
        header["__metadata__"] = rng.choice([{}, {"a": "b"}, {"a": 1}, [], None, {"a": None}])
    elif kind == 6:
        data += b"x" * rng.randrange(1, 9)
    elif kind == 7:
        data = data[:-rng.randrange(1, 9)]
    elif kind == 8 and entry:
        a, b = entry["data_offsets"]
        entry["data_offsets"] = rng.choice([[b, a], [a], [a, b, b], [float(a), b], None])
    elif kind == 9 and len(names) > 1:
        header[names[0]]["data_offsets"], header[names[1]]["data_offsets"] = (
            header[names[1]]["data_offsets"], header[names[0]]["data_offsets"])
    return header, data


def random_file(rng):
    header, end = {}, 0
    for i in range(rng.choice([0, 1, 1, 2, 3])):
        header[rng.choice(["a", "b", "c\u00e9", "", "x.y"]) + str(i)] = t = random_tensor(rng, end)
        end = t["data_offsets"][1]
    header, data = spoil(rng, header, bytes(end))
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode()
    kind = rng.randrange(20)
    if kind == 0:
        text = b" " + text
    elif kind == 1:
        text += rng.choice([b" ", b"\n ", b"x", b"{}", b"\0", b"    "])
    elif kind == 2 and b'"shape"' in text:
        text = text.replace(b'"shape"', b'"dtype": "F32", "shape"', 1)
    elif kind == 3 and text:
        i = rng.randrange(len(text))
        text = text[:i] + bytes([rng.randrange(256)]) + text[i + 1:]
    length = len(text)
    if rng.randrange(30) == 0:
        length = rng.choice([0, 1, length - 1, length + 1, 1 << 31, 100000001, 1 << 63])
    return struct.pack("<Q", length) + text + data


def theirs(content):
    try:
        length = struct.unpack("<Q", content[:8])[0]
        order = json.loads(content[8:8 + length])
        found = deserialize(content)
    except Exception as error:
        return f"refused: {type(error).__name__} {error}"
    lines = []
    for name, tensor in found:
        begin, end = order[name]["data_offsets"]
        shape = "".join(f"{n}," for n in tensor["shape"])
        lines.append(f"{name} {order[name]['dtype']} [{shape}] {8 + length + begin} {end - begin}")
    return "\n".join(sorted(lines))


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    seen, wrong = collections.Counter(), 0
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace")
    with (tempfile.TemporaryDirectory() as folder,
          subprocess.Popen([program], **pipes) as reader):
        path = pathlib.Path(folder) / "f"
        for _ in range(count):
            content = random_file(rng)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            reader.stdin.write(f"{path}\n")
            reader.stdin.flush()
            lines = []
            while line := reader.stdout.readline().rstrip("\n"):
                lines.append(line)
            ours, other = "\n".join(sorted(lines)), theirs(content)
            if ours.startswith("refused") and not other.startswith("refused"):
                reason = next((v for k, v in STRICTER.items() if k in ours), None)
                seen[f"stricter: {reason}"] += 1
                agree = reason is not None
            else:
                agree = ours == other or ours.startswith("refused") and other.startswith("refused")
                seen["both refuse" if ours.startswith("refused") else "both accept"] += 1
            if not agree:
                wrong += 1
                print(f"DIFFER on {content!r}\n  ours:   {ours}\n  theirs: {other}")
        reader.stdin.close()
    for what, n in sorted(seen.items()):
        print(f"{n:7d} {what}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
