#!/usr/bin/env python3
"""The loss curve of a run, read back from the SVG."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from wording import says  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "loss_curve.py"


def draw(rows, *options):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "a&b"
        run.mkdir()
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return subprocess.run([sys.executable, "-B", SCRIPT, run, *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class LossCurve(unittest.TestCase):
    def elements(self, rows, *options):
        done = draw(rows, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return list(xml.etree.ElementTree.fromstring(done.stdout).iter())

    def test_marks_lie_where_the_axes_say(self):
        rows = [{"step": s, "loss": 6 - s / 100} for s in range(1, 401)]
        rows[199]["validation_loss"] = 3.0
        elements = self.elements(rows, "--line", "2.5", "counting")
        # Two labels of an axis give its scale.
        texts = [(e.text, float(e.get("x")), float(e.get("y"))) for e in elements
                 if e.tag.endswith("text")]
        heights = {float(t): y - 4 for t, x, y in texts if re.fullmatch(r"[\d.]+", t) and x < 56}
        places = {float(t): x for t, x, y in texts if re.fullmatch(r"[\d.]+", t) and x > 56}
        (y1, h1), *_, (y2, h2) = sorted(heights.items())
        (x1, p1), *_, (x2, p2) = sorted(places.items())
        circle, = (e for e in elements if e.tag.endswith("circle"))
        self.assertAlmostEqual(float(circle.get("cy")), h1 + (3.0 - y1) * (h2 - h1) / (y2 - y1), 0)
        self.assertAlmostEqual(float(circle.get("cx")), p1 + (200 - x1) * (p2 - p1) / (x2 - x1), 0)
        dashed, = (e for e in elements if e.get("stroke-dasharray"))
        height = float(re.match(r"M\d+,([\d.]+)", dashed.get("d"))[1])
        self.assertAlmostEqual(height, h1 + (2.5 - y1) * (h2 - h1) / (y2 - y1), 0)
        curves = [e for e in elements if e.get("clip-path")]
        self.assertEqual([len(e.get("d").split()) for e in curves], [400, 400])
        self.assertTrue(any(t == says("scripts.loss_curve", run="a&b") for t, _, _ in texts))

    def test_text_has_the_means_and_the_validation_losses(self):
        rows = [{"step": s, "loss": 9.0 if s == 1 else 5.0 - s / 100} for s in range(1, 41)]
        rows[-1]["validation_loss"] = 4.0
        title, *lines, steps = draw(rows, "--text").stdout.splitlines()
        self.assertTrue(title.endswith(says("scripts.loss_curve", run="")), title)
        self.assertEqual(len(lines), 11)
        self.assertTrue(lines[0].startswith("   4.97 |  "), lines)  # the third of 40 steps
        self.assertEqual(lines[-2], "   4.00 |" + " " * 59 + "o")
        self.assertEqual(steps.split(), ["1", "40"])
        marks = [line.index("*") for line in lines if "*" in line]
        self.assertEqual(marks, sorted(marks), "the loss decreases")

    def test_a_skipped_step_has_no_mark(self):
        rows = [{"step": s, "loss": None if s == 3 else 2.0 + s} for s in range(1, 6)]
        curves = [e for e in self.elements(rows) if e.get("clip-path")]
        self.assertEqual(len(curves[0].get("d").split()), 4)

    def test_a_run_without_steps_is_refused(self):
        done = draw([])
        self.assertEqual(done.returncode, 1)
        self.assertIn(says("scripts.few_steps"), done.stderr)


if __name__ == "__main__":
    unittest.main()
