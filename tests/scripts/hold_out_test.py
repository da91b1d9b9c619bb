#!/usr/bin/env python3
"""scripts/hold_out.py splits any text, and quickstart.sh refuses what it cannot train on."""

import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from wording import says  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "hold_out.py"


class HoldOut(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.root = pathlib.Path(self.directory.name)

    def text(self, name, data):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def run_script(self, *paths):
        return subprocess.run([sys.executable, "-B", SCRIPT, self.root / "out", *paths],
                              capture_output=True, text=True, check=False)

    def split(self, *paths):
        done = self.run_script(*paths)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(self.root / "out" / name).read_bytes() for name in ("train.txt", "validation.txt")]

    def test_every_20th_block_of_a_long_text_is_held_out(self):
        data = random.Random(1).randbytes(50 * 65536 + 123)
        blocks = [data[at:at + 65536] for at in range(0, len(data), 65536)]
        train, validation = self.split(self.text("a", data))
        self.assertEqual(validation, blocks[19] + blocks[39])
        self.assertEqual(train, b"".join(b for i, b in enumerate(blocks) if i not in (19, 39)))

    def test_text_without_paragraphs_or_with_other_line_ends_is_split_too(self):
        for unit in (b"one line\r\n\r\n", b"x", b"a paragraph\n\n", b"\xff\n"):
            for size in (32768, 32769, 100000, 20 * 65536 - 1):
                data = (unit * size)[:size]
                train, validation = self.split(self.text("a", data))
                self.assertEqual(len(train) + len(validation), size)
                self.assertGreater(len(validation), 6 * 256)
                self.assertAlmostEqual(len(validation) / size, 0.05, delta=0.001)

    def test_files_and_directories_follow_each_other_in_order(self):
        data = random.Random(2).randbytes(400000)
        self.text("d/b/1", data[:100000])
        self.text("d/c", b"")
        self.text("d/.hidden", b"hidden")
        self.text("d/.git/config", b"hidden")
        last = self.text("e", data[100000:])
        train, validation = self.split(str(self.root / "d"), last)
        self.assertEqual(train[:380000] + validation, data)

    def test_too_little_or_unreadable_text_is_refused_by_name(self):
        small = self.text("small", b"x" * 32767)
        for path, said in ((small, says("scripts.bytes", bytes=32767)), (str(self.root / "no"), says("scripts.no_file")),
                           ("/dev/null", says("scripts.no_file"))):
            done = self.run_script(path)
            self.assertEqual(done.returncode, 65)
            self.assertIn(f"{path}: {said}", done.stderr)
            self.assertFalse((self.root / "out").exists())

    def test_a_full_disk_is_no_error_of_the_text(self):
        done = subprocess.run(["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", sys.executable, "-B", SCRIPT,
                               self.root / "out", self.text("a", b"x" * 100000)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertIn("File too large", done.stderr)

    def test_quickstart_refuses_before_it_builds(self):
        for path, said in ((self.text("small", b"x" * 100), says("scripts.bytes", bytes=100)),
                           (str(self.root / "no"), str(self.root / "no"))):
            done = subprocess.run([ROOT / "quickstart.sh", path], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 65, done.stdout + done.stderr)
            self.assertIn(said, done.stderr)
            self.assertLess(done.stdout.count("\n== "), 2, done.stdout)  # the heading of its first part


if __name__ == "__main__":
    unittest.main()
