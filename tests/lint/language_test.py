#!/usr/bin/env python3
"""language.py finds each kind of fault in a small repository, and none in plain text."""

import pathlib
import subprocess
import tempfile
import unittest

import language


class Language(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.git("init", "-q")
        self.commit("core: begin")

    def git(self, *words):
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        done = subprocess.run(["git", *identity, *words], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, subject):
        self.git("commit", "-q", "--allow-empty", "-m", subject)

    def write(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")
        self.git("add", name)

    def faults(self):
        return list(language.faults(self.root))

    def test_a_phrase(self):
        self.write("run.cpp", "// The run resumes.\n// It goes on from step 5.\n")
        self.assertEqual(self.faults(), ['run.cpp:2: "goes on from": write resume, continue'])

    def test_a_long_line_of_prose(self):
        exempt = ["| " + "x" * 120, "    " + "x" * 120, "[link](" + "x" * 120 + ")"]
        self.write("page.md", "\n".join(["x" * 100, *exempt, "```", "x" * 120, "```", "x" * 101]) + "\n")
        self.assertEqual(self.faults(), ["page.md:8: 101 columns, at most 100"])

    def test_a_long_subject(self):
        rule, language.RULE = language.RULE, self.git("rev-parse", "HEAD")
        self.addCleanup(setattr, language, "RULE", rule)
        self.commit("core: " + "x" * 66)
        self.assertEqual(self.faults(), [])
        self.commit("core: " + "x" * 67)
        self.assertEqual([fault.split(": ", 1)[1] for fault in self.faults()],
                         ["the subject has 73 characters, at most 72"])


if __name__ == "__main__":
    unittest.main()
