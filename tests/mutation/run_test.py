#!/usr/bin/env python3
"""What run.py says of faults in a small project, whose programs are shell scripts."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"

PROJECT = {
    "CMakePresets.json": """{"version": 6, "configurePresets": [
        {"name": "cpu", "generator": "Ninja", "binaryDir": "${sourceDir}/build/cpu"}]}""",
    "CMakeLists.txt": """
        cmake_minimum_required(VERSION 3.25)
        project(small NONE)
        enable_testing()
        add_custom_target(core_tests COMMAND sh -n ${CMAKE_SOURCE_DIR}/core/sum.sh)
        add_test(NAME core.Sum.is_right COMMAND sh ${CMAKE_SOURCE_DIR}/core/sum.sh)
        add_test(NAME core.Sum.is_short COMMAND true)
        add_test(NAME core.Sum.soak_is_right COMMAND false)
        add_test(NAME core.other_program COMMAND false)
        set_tests_properties(core.Sum.is_right core.Sum.is_short core.other_program PROPERTIES LABELS ci TIMEOUT 2)
        set_tests_properties(core.Sum.soak_is_right PROPERTIES LABELS soak)
        """,
    "core/sum.sh": "# one and two\nsum=$((1 + 2))\nexit $((sum != 3))\n",
    ".gitignore": "/build/\n",
}
FAULTS = """
import types
def fault(name, text, replacement):
    return types.SimpleNamespace(name=name, library="core", binary="core", file="core/sum.sh", text=text,
                                 replacement=replacement)
FAULTS = [fault("minus", "1 + 2", "1 - 2"), fault("comment", "# one and two", "# two and one"),
          fault("no_end", "exit", "sleep 60; exit"), fault("syntax", "exit", "exit )"),
          fault("once", "exit", "mkdir seen && exit 1; exit"),
          fault("twice", "sum", "all"), fault("absent", "product", "sum")]
"""


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in PROJECT.items():
            path = self.root / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.root / "faults.py").write_text(FAULTS)
        subprocess.run(["git", "init", "-q", self.root / "project"], check=True)

    def run_on(self, only):
        done = subprocess.run([sys.executable, "-B", RUN, self.root / "build", "--source", self.root / "project",
                               "--faults", self.root / "faults.py", "--only", only, "--jobs", "2"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_a_fault_that_a_test_sees_is_found_and_named(self):
        code, output = self.run_on("minus")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"\| minus +\| core +\| core\.Sum\.is_right +\|")

    def test_a_fault_that_hangs_is_found(self):
        code, output = self.run_on("no_end")
        self.assertEqual(code, 0, output)
        self.assertIn("core.Sum.is_right (timeout)", output)

    def test_a_change_that_no_test_sees_survives_and_the_next_fault_is_alone(self):
        code, output = self.run_on("minus|comment")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"\| comment +\| core +\| SURVIVED +\|")
        self.assertIn("2 faults: 1 found, 1 survived, 0 not judged", output)

    def test_a_test_that_fails_once_finds_nothing(self):
        code, output = self.run_on("once")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"\| once +\| core +\| SURVIVED +\|")

    def test_a_fault_that_does_not_compile_is_an_error(self):
        code, output = self.run_on("minus|syntax")
        self.assertEqual(code, 2, output)
        self.assertIn("2 faults: 1 found, 0 survived, 1 not judged", output)

    def test_a_text_that_does_not_occur_once_is_an_error(self):
        for name, count in (("twice", 2), ("absent", 0)):
            code, output = self.run_on(name)
            self.assertEqual(code, 2, output)
            self.assertIn(f"{name}: its text occurs {count} times in core/sum.sh, expected once", output)

    def test_tests_that_fail_without_a_fault_are_an_error(self):
        (self.root / "project" / "core" / "sum.sh").write_text("sum=$((1 + 2))\nexit 1\n")
        code, output = self.run_on("minus")
        self.assertEqual(code, 2, output)
        self.assertIn("core.Sum.is_right fails without a fault", output)


if __name__ == "__main__":
    unittest.main()
