"""Reads checkpoints with the `safetensors` package, and joins slices as in docs/formats.md ("Checkpoints")."""

import json
import math

from safetensors import deserialize

SIZES = dict(F32=4, BF16=2, F8_E4M3=1, F8_E5M2=1, I32=4, U8=1)


class Wrong(Exception):
    """A file does not hold what the manifest lists."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def tensors_of(path):
    """Returns (shape, bytes) by name."""
    return {name: (list(tensor["shape"]), bytes(tensor["data"]))
            for name, tensor in deserialize(path.read_bytes())}


def tensors_of_all(directory):
    return {name: tensor for path in sorted(directory.glob("*.safetensors"))
            for name, tensor in tensors_of(path).items()}


def stored_as(tensor, piece):
    """Returns the name and shape of a slice in its file; the shape is flat unless the slice is the whole tensor."""
    begin, end = piece["begin"], piece["end"]
    if end - begin == math.prod(tensor["shape"]):
        return tensor["name"], tensor["shape"]
    return (f"{tensor['name']}[{piece['part']}/{tensor['parts']} of dim {tensor['dim']}, "
            f"{begin}:{end}]", [end - begin])


def put_together(tensor, parts, size):
    """Returns the bytes of a tensor from those of its parts: ranges of `step` indices of dimension `dim`."""
    shape, dim = tensor["shape"], tensor["dim"]
    inner = math.prod(shape[dim + 1:]) * size
    whole = bytearray()
    for row in range(math.prod(shape[:dim])):
        for part, data in enumerate(parts):
            count = max(0, min(tensor["step"], shape[dim] - part * tensor["step"]))
            whole += data[row * count * inner:(row + 1) * count * inner]
    return bytes(whole)


def read(checkpoint):
    """Returns the number of files, and (shape, bytes) of each whole tensor by name. Throws Wrong."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    paths = [checkpoint / file["name"] for file in manifest["files"]]
    bytes_of, stored = [path.read_bytes() for path in paths], [tensors_of(path) for path in paths]
    wholes = {}
    for tensor in manifest["tensors"]:
        size, parts = SIZES[tensor["dtype"]], [b""] * tensor["parts"]
        for piece in sorted(tensor["slices"], key=lambda piece: piece["begin"]):
            name, shape = stored_as(tensor, piece)
            found = stored[piece["file"]].pop(name, None)
            written = bytes_of[piece["file"]][piece["offset"]:][:(piece["end"] - piece["begin"]) * size]
            expect(found == (shape, written), f"{paths[piece['file']].name}: {name}")
            parts[piece["part"]] += written
        whole = put_together(tensor, parts, size)
        expect(len(whole) == math.prod(tensor["shape"]) * size, f"{tensor['name']} is incomplete")
        wholes[tensor["name"]] = tensor["shape"], whole
    expect(not any(stored), f"the manifest does not name {stored}")
    return len(paths), wholes
