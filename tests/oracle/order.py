"""Computes the order of samples from docs/formats.md ("Order") alone, to check that page."""

MASK = (1 << 64) - 1
G = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def high(x, bits):
    return x >> (64 - bits)


def permuted(key, n, i):
    """Returns the image of i under the permutation of [0, n) that `key` selects."""
    bits = (n - 1).bit_length()
    left_bits = bits // 2
    right_bits = bits - left_bits
    keys = [mix(key + r * G & MASK) for r in range(1, 7)]
    while True:
        left, right = i >> right_bits, i & ((1 << right_bits) - 1)
        for r in range(0, 6, 2):
            left ^= high(mix(right ^ keys[r]), left_bits)
            right ^= high(mix(left ^ keys[r + 1]), right_bits)
        i = left << right_bits | right
        if i < n:
            return i


def sample(seed, n, g):
    """Returns the window that is the g-th sample of a run whose data have n windows."""
    key = mix(mix(seed + G & MASK) + g // n * G & MASK)
    return permuted(key, n, g % n)
