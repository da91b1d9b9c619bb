"""Token shards of every format, written and read by the bytes of docs/formats.md alone."""

import array
import json
import struct
import sys

assert sys.byteorder == "little"
TYPES = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}  # Megatron's codes


def packed(code, values):
    return array.array(code, values).tobytes()


def unpacked(code, data):
    values = array.array(code)
    values.frombytes(data)
    return list(values)


def joined(documents):
    return [token for document in documents for token in document]


def ends_of(documents):
    ends, end = [], 0
    for document in documents:
        end += len(document)
        ends.append(end)
    return ends


def cut_at(tokens, ends):
    return [tokens[first:end] for first, end in zip([0] + ends[:-1], ends)]


def cut_by(tokens, boundary, behind):
    documents, start = [], True
    for token in tokens:
        if start or (not behind and token == boundary):
            documents.append([])
        documents[-1].append(token)
        start = behind and token == boundary
    return documents


# ------------------------------------------------------------------------------------------- write


def write_llmc(folder, documents, boundary=50256):
    """Shards of 700 tokens, which documents cross."""
    tokens = joined([boundary, *document] for document in documents)
    magic, version, code = (20240520, 1, "H") if boundary == 50256 else (20240801, 7, "I")
    for i in range(0, len(tokens), 700):
        part = tokens[i:i + 700]
        header = struct.pack("<3i", magic, version, len(part)).ljust(1024, b"\0")
        (folder / f"x_train_{i // 700:06d}.bin").write_bytes(header + packed(code, part))


def write_nanogpt(folder, documents):
    tokens = joined([*document, 50256] for document in documents)
    (folder / "train.bin").write_bytes(packed("H", tokens))


def write_megatron(folder, documents, code=8):
    """Documents of several sequences, as of sentences."""
    lengths, firsts, offsets = [], [0], []
    for document in documents:
        rest = len(document)
        while rest:
            lengths.append(min(rest, 17))
            rest -= lengths[-1]
        firsts.append(len(lengths))
    width = struct.calcsize(TYPES[code])
    for i in range(len(lengths)):
        offsets.append(offsets[-1] + lengths[i - 1] * width if i else 0)
    (folder / "x_text_document.bin").write_bytes(packed(TYPES[code], joined(documents)))
    (folder / "x_text_document.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(firsts))
        + packed("i", lengths) + packed("q", offsets) + packed("q", firsts))


def write_datatrove(folder, documents, code="H"):
    half = len(documents) // 2
    for rank, part in enumerate((documents[:half], documents[half:])):
        name = folder / f"{rank:05d}_x.ds"
        name.write_bytes(packed(code, joined(part)))
        folder.joinpath(name.name + ".index").write_bytes(packed("Q", ends_of(part)))
        width, count = struct.calcsize(code), len(joined(part))
        folder.joinpath(name.name + ".metadata").write_text(f"gpt2|{width}\n{count}\n{count} T")


# -------------------------------------------------------------------------------------------- read


def shard_tokens(data):
    magic, version, count = struct.unpack_from("<3i", data)
    code = {(20240520, 1): "H", (20240801, 7): "I"}[magic, version]
    assert data[12:1024] == bytes(1012)
    tokens = unpacked(code, data[1024:])
    assert len(tokens) == count
    return tokens


def read_llmc(folder, boundary=50256):
    tokens = joined(shard_tokens(path.read_bytes()) for path in sorted(folder.glob("*.bin")))
    documents = cut_by(tokens, boundary, False)
    assert all(document[0] == boundary for document in documents)
    return [document[1:] for document in documents]


def read_nanogpt(folder):
    path, = folder.iterdir()
    documents = cut_by(unpacked("H", path.read_bytes()), 50256, True)
    assert all(document[-1] == 50256 for document in documents)
    return [document[:-1] for document in documents]


def read_megatron(folder):
    documents = []
    for path in sorted(folder.glob("*.idx")):
        data = path.read_bytes()
        assert data[:9] == b"MMIDIDX\0\0"
        version, code, sequences, indices = struct.unpack_from("<QBQQ", data, 9)
        assert version == 1 and len(data) == 34 + 12 * sequences + 8 * indices
        lengths = unpacked("i", data[34:34 + 4 * sequences])
        offsets = unpacked("q", data[34 + 4 * sequences:34 + 12 * sequences])
        firsts = unpacked("q", data[34 + 12 * sequences:])
        assert firsts[0] == 0 and firsts[-1] == sequences
        width = struct.calcsize(TYPES[code])
        tokens = path.with_suffix(".bin").read_bytes()
        parts = [unpacked(TYPES[code], tokens[offset:offset + length * width])
                 for length, offset in zip(lengths, offsets)]
        documents += [joined(parts[first:end]) for first, end in zip(firsts, firsts[1:])]
    return documents


def read_datatrove(folder):
    documents = []
    for path in sorted(folder.glob("*.ds")):
        first, count = (folder / f"{path.name}.metadata").read_text().splitlines()[:2]
        code = {"2": "H", "4": "I"}[first.rpartition("|")[2]]
        tokens = unpacked(code, path.read_bytes())
        ends = unpacked("Q", (folder / f"{path.name}.index").read_bytes())
        assert len(tokens) == int(count) == ends[-1]
        documents += cut_at(tokens, ends)
    return documents


def read_lockstep(folder):
    about = json.loads((folder / "dataset.json").read_text())
    tokens, ends = [], []
    for shard in about["shards"]:
        part = shard_tokens((folder / shard["file"]).read_bytes())
        listed = unpacked("Q", (folder / shard["file"]).with_suffix(".ends").read_bytes())
        assert len(part) == shard["tokens"] and len(listed) == shard["documents"]
        ends += [len(tokens) + end for end in listed]
        tokens += part
    assert len(tokens) == about["tokens"] == ends[-1]
    return cut_at(tokens, ends)
