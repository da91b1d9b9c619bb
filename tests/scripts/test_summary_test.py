#!/usr/bin/env python3
"""The counts that test.sh ends with, from CTest results of every kind."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "test_summary.py"

PASSED = '<testcase name="a.Passes" status="run"><system-out>ok</system-out></testcase>'
FAILED = '<testcase name="a.Fails" status="fail"><failure message=""/></testcase>'
SKIPPED = """<testcase name="a.Skips" status="notrun">
<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>[ RUN      ] a.Skips
x_test.cpp:12: Skipped
this machine has
no AVX-512

[  SKIPPED ] a.Skips (0 ms)
</system-out></testcase>"""
SCRIPT_SKIPPED = """<testcase name="lint" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>SKIPPED: clang-tidy is not installed
</system-out></testcase>"""
DISABLED = """<testcase name="a.Old" status="disabled"><skipped message="Disabled"/></testcase>"""
NO_PROGRAM = """<testcase name="b_NOT_BUILT" status="notrun">
<skipped message="Unable to find executable"/></testcase>"""


class Summary(unittest.TestCase):
    def summary(self, *files, log=None):
        with tempfile.TemporaryDirectory() as folder:
            if log is not None:
                pathlib.Path(folder, ".ninja_log").write_text(log)
            arguments = []
            for number, cases in enumerate(files):
                path = pathlib.Path(folder) / f"{number}.xml"
                path.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
                arguments.append(f"preset{number}={path}")
            return subprocess.run([sys.executable, "-B", SUMMARY, *arguments],
                                  stdout=subprocess.PIPE, text=True)

    def test_passed(self):
        done = self.summary([PASSED, PASSED])
        self.assertEqual((done.returncode, done.stdout), (0, "2 passed, 0 failed, 0 skipped\n"))

    def test_each_kind_is_counted_and_named(self):
        done = self.summary([PASSED, FAILED, SKIPPED, SCRIPT_SKIPPED, DISABLED])
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED   preset0: a.Fails\n", done.stdout)
        self.assertIn("skipped  preset0: a.Skips: this machine has no AVX-512\n", done.stdout)
        self.assertIn("skipped  preset0: lint: clang-tidy is not installed\n", done.stdout)
        self.assertIn("skipped  preset0: a.Old: disabled\n", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 3 skipped")

    def test_equal_reasons_share_a_line(self):
        done = self.summary([PASSED, SKIPPED, SKIPPED, SKIPPED])
        self.assertIn("a.Skips and 2 more: this machine", done.stdout)

    def test_seconds_are_summed_by_binary(self):
        timed = ['<testcase name="a.Slow" status="run" time="70.4"/>',
                 '<testcase name="a.Quick" status="run" time="3"/>',
                 '<testcase name="b.Quick" status="run" time="0.2"/>']
        done = self.summary(timed)
        self.assertIn("seconds  by test binary: preset0: a 73\n", done.stdout)
        self.assertIn("of the slowest cases: preset0: a.Slow 70, preset0: a.Quick 3\n", done.stdout)

    def test_seconds_of_compiling_are_summed_by_target(self):
        log = "".join(f"{line}\t0\t{output}\t0\n" for line, output in (
            ("0\t90000", "core/CMakeFiles/core.dir/a.cpp.o"),  # and compiled again later
            ("0\t3000", "core/CMakeFiles/core.dir/a.cpp.o"), ("3000\t4500", "core/CMakeFiles/core.dir/b.cpp.o"),
            ("0\t2000", "CMakeFiles/other.dir/c.cpp.o"), ("4000\t9000", "core/libcore.a")))
        done = self.summary([PASSED], log="# ninja log v5\n" + log)
        self.assertIn("seconds  of compiling: preset0: core 4, preset0: other 2\n", done.stdout)

    def test_files_add_up(self):
        done = self.summary([PASSED], [PASSED, SKIPPED])
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed, 1 skipped")

    def test_a_program_that_was_not_built_failed(self):
        done = self.summary([PASSED, NO_PROGRAM])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_nothing_that_ran_is_no_success(self):
        self.assertEqual(self.summary([]).returncode, 1)
        self.assertEqual(self.summary([SKIPPED]).returncode, 1)


if __name__ == "__main__":
    unittest.main()
