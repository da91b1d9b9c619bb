#!/usr/bin/env python3
"""Prints the cross entropy of a trigram model of bytes, as a baseline for the loss of a run.

usage: byte_model.py TRAIN.txt VALIDATION.txt BYTES

Counts the three-byte sequences of TRAIN. Prints the mean of -log p(byte | two bytes before) over the
first BYTES of VALIDATION, in nats per byte. The counts after a context are mixed with the prediction
of the next shorter context, which has the weight of PRIOR occurrences. The shortest context is empty:
it gives the frequency of each byte, with 1 added to its count.
"""

import collections
import math
import sys

PRIOR = 4


def count(data):
    """Returns {b0 + 256 b1 + 65536 b2: occurrences of b0 b1 b2 in `data`}."""
    quadruples = collections.Counter()
    view = memoryview(data)
    for offset in range(4):  # four bytes as one integer, counted by compiled code
        end = offset + (len(data) - offset) // 4 * 4
        quadruples.update(view[offset:end].cast("I"))
    triples = collections.Counter()
    for four, times in quadruples.items():  # little-endian: the first byte is the lowest
        triples[four & 0xFFFFFF] += times
    return triples  # without the last triple of `data`, which starts no quadruple


def cross_entropy(train, validation):
    """Returns the nats per byte of the triples `validation` under the counts `train`."""
    pairs, singles = collections.Counter(), collections.Counter()
    after_pair, after_single = collections.Counter(), collections.Counter()
    for triple, times in train.items():
        pairs[triple >> 8] += times
        after_pair[triple & 0xFFFF] += times
    for pair, times in pairs.items():
        singles[pair >> 8] += times
        after_single[pair & 0xFF] += times
    total = sum(singles.values())
    nats = 0.0
    for triple, times in validation.items():
        p = (singles[triple >> 16] + 1) / (total + 256)
        p = (pairs[triple >> 8] + PRIOR * p) / (after_single[(triple >> 8) & 0xFF] + PRIOR)
        p = (train[triple] + PRIOR * p) / (after_pair[triple & 0xFFFF] + PRIOR)
        nats -= times * math.log(p)
    return nats / sum(validation.values())


def main(train, validation, most_bytes):
    with open(train, "rb") as file:
        counts = count(file.read())
    with open(validation, "rb") as file:
        print(f"{cross_entropy(counts, count(file.read(int(most_bytes)))):.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
