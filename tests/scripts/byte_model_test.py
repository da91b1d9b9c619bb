#!/usr/bin/env python3
"""scripts/byte_model.py against the same model written the long way."""

import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import byte_model  # noqa: E402


def probability(train, context, byte):
    """p(byte | context): counts, mixed with what one byte less of context says."""
    seen = [train[i + len(context)] for i in range(len(train) - len(context))
            if train[i:i + len(context)] == context]
    if not context:
        return (seen.count(byte) + 1) / (len(seen) + 256)
    shorter = probability(train, context[1:], byte)
    return (seen.count(byte) + byte_model.PRIOR * shorter) / (len(seen) + byte_model.PRIOR)


class ByteModel(unittest.TestCase):
    def test_agrees_with_the_long_way(self):
        rng = random.Random(1)
        train = bytes(rng.choice(b"abcab ") for _ in range(3000))
        validation = bytes(rng.choice(b"abcab d") for _ in range(300))
        fast = byte_model.cross_entropy(byte_model.count(train), byte_model.count(validation))
        nats = [-math.log(probability(train, validation[i - 2:i], validation[i]))
                for i in range(2, len(validation) - 1)]  # count() leaves out the last triple
        self.assertAlmostEqual(fast, sum(nats) / len(nats), delta=0.002)

    def test_a_text_that_repeats_itself_is_predicted(self):
        text = b"abc" * 5000
        nats = byte_model.cross_entropy(byte_model.count(text), byte_model.count(text))
        self.assertLess(nats, 0.01)


if __name__ == "__main__":
    unittest.main()
