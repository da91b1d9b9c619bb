#!/usr/bin/env python3
"""Text preparation and the counting model, on small texts whose answers are known by hand."""

import gzip
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import byte_model  # noqa: E402
import prepare_gcide  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from wording import says  # noqa: E402

PREAMBLE = b"\n\n00-database-url\n   somewhere\n\n      be hoped\n      for.        --Locke."
ENTRY = b"\n0 \\0\\ adj.\n"


class Clean(unittest.TestCase):
    def cleaned(self, entries):
        text = prepare_gcide.clean(PREAMBLE + ENTRY + entries)
        self.assertTrue(text.startswith(ENTRY[1:]))
        return text[len(ENTRY) - 1:]

    def test_the_preamble_is_removed(self):
        self.assertEqual(self.cleaned(b"   1. none\n"), b"   1. none\n")

    def test_another_text_is_refused(self):
        with self.assertRaises(SystemExit):
            prepare_gcide.clean(b"The Raven\n")

    def test_a_tag_alone_is_removed_with_its_line(self):
        self.assertEqual(self.cleaned(b"   a thing.\n      [1913 Webster]\n\nB\n"),
                         b"   a thing.\n\nB\n")

    def test_a_tag_before_text_leaves_the_indentation(self):
        self.assertEqual(self.cleaned(b"   symbols.\n   [1913 Webster] This letter\n"),
                         b"   symbols.\n   This letter\n")

    def test_a_tag_after_text_is_removed_with_its_space(self):
        self.assertEqual(self.cleaned(b"   a thing. [1913 Webster]\n"), b"   a thing.\n")

    def test_other_tags_stay(self):
        self.assertEqual(self.cleaned(b"   [1913 Webster +PJC]\n   [Obs.]\n"),
                         b"   [1913 Webster +PJC]\n   [Obs.]\n")

    def test_the_three_latin_bytes_are_mended_and_utf8_stays(self):
        self.assertEqual(self.cleaned(b"market\x92s fa\xe7ade haven\xb9t \xc3\xa9"),
                         "market's fa\u00e7ade haven't \u00e9".encode())

    def test_an_unknown_byte_is_refused(self):
        with self.assertRaises(SystemExit):
            self.cleaned(b"\xfe")


class Split(unittest.TestCase):
    def test_every_20th_block_is_held_out_and_nothing_is_lost(self):
        size = prepare_gcide.BLOCK_BYTES
        text = b"".join(bytes([number]) * size for number in range(45)) + b"end"
        train, validation = prepare_gcide.split(text)
        self.assertEqual(validation, bytes([19]) * size + bytes([39]) * size)
        self.assertEqual(len(train) + len(validation), len(text))
        self.assertEqual(train[19 * size:19 * size + 1], bytes([20]))
        self.assertTrue(train.endswith(b"end"))


class WholeScript(unittest.TestCase):
    def run_on(self, source):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "gcide.dict.dz"
            path.write_bytes(source)
            done = subprocess.run(
                [sys.executable, "-B", SCRIPTS / "prepare_gcide.py", path, pathlib.Path(folder)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            written = {p.name: p.read_bytes() for p in pathlib.Path(folder).glob("*.txt")}
        return done, written

    def test_it_writes_both_files_and_reports_an_unknown_version(self):
        done, written = self.run_on(gzip.compress(PREAMBLE + ENTRY + b"x" * 1310720))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(written["validation.txt"]), 65536)
        self.assertEqual(len(written["train.txt"]), 1310720 + len(ENTRY) - 1 - 65536)
        self.assertIn(says("scripts.other_version"), done.stdout)

    def test_a_damaged_source_is_refused_and_writes_nothing(self):
        whole = gzip.compress(PREAMBLE + ENTRY + bytes(range(128)) * 100)
        done, written = self.run_on(whole[:len(whole) // 2])
        self.assertEqual(done.returncode, 1)
        self.assertIn(says("scripts.cannot_read"), done.stderr)
        self.assertEqual(written, {})


class ByteModel(unittest.TestCase):
    def test_counts_equal_counting_by_hand(self):
        data = random.Random(1).randbytes(1001)
        expected = {}
        for a, b, c in zip(data[:-1], data[1:-1], data[2:-1]):  # but the last triple
            triple = a + 256 * b + 65536 * c
            expected[triple] = expected.get(triple, 0) + 1
        self.assertEqual(dict(byte_model.count(data)), expected)

    def test_a_certain_byte_costs_almost_nothing(self):
        counts = byte_model.count(b"abc" * 100000)
        self.assertLess(byte_model.cross_entropy(counts, byte_model.count(b"abc" * 100)), 1e-3)

    def test_noise_costs_the_logarithm_of_its_bytes(self):
        noise = random.Random(2)
        letters = [bytes(noise.choices(b"abcd", k=200000)) for _ in range(2)]
        nats = byte_model.cross_entropy(*map(byte_model.count, letters))
        self.assertAlmostEqual(nats, math.log(4), delta=1e-3)

    def test_an_unseen_byte_costs_much_but_not_infinity(self):
        counts = byte_model.count(b"abc" * 1000)
        nats = byte_model.cross_entropy(counts, byte_model.count(b"xyz" * 10))
        self.assertTrue(5 < nats < 20, nats)


if __name__ == "__main__":
    unittest.main()
