#!/usr/bin/env python3
"""Reads what write_events wrote with the tensorboard package, as its server does.

usage: tensorboard_test.py WRITE_EVENTS
"""

import math
import subprocess
import sys
import tempfile
import unittest

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WRITE_EVENTS = sys.argv.pop()


class EventFiles(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        subprocess.run([WRITE_EVENTS, cls.directory.name], check=True)
        cls.events = EventAccumulator(cls.directory.name, size_guidance={"scalars": 0})
        cls.events.Reload()

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_every_tag_is_there_and_an_unknown_value_has_none(self):
        self.assertEqual(set(self.events.Tags()["scalars"]), {
            "train/loss", "train/grad_norm", "train/learning_rate", "speed/step_seconds",
            "speed/tokens_per_second", "speed/data_wait_seconds", "memory/peak_bytes",
            "validation/loss"})

    def test_values_are_what_was_written(self):
        for event in self.events.Scalars("train/learning_rate"):
            self.assertTrue(math.isclose(event.value, 6e-4, rel_tol=1e-6))
        self.assertGreater(self.events.Scalars("train/loss")[0].wall_time, 1.6e9)

    def test_what_a_resumed_run_replays_replaces_what_was_there(self):
        losses = {event.step: event.value for event in self.events.Scalars("train/loss")}
        self.assertEqual(len(self.events.Scalars("train/loss")), 20)
        for step in range(1, 21):
            expected = (100 if step <= 10 else 200) + 1 / step
            self.assertTrue(math.isclose(losses[step], expected, rel_tol=1e-6), (step, losses[step]))

    def test_a_validation_stands_at_its_steps(self):
        steps = [event.step for event in self.events.Scalars("validation/loss")]
        self.assertEqual(steps, [5, 10, 15, 20])


if __name__ == "__main__":
    unittest.main()
