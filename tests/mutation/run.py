#!/usr/bin/env python3
"""Inserts faults into a copy of the sources, one at a time, and checks that tests of their library find each.

usage: run.py BUILD_DIR [--only REGEX] [--library NAME] [--jobs N] [--source DIR] [--faults FILE]

The copy of the tracked files is in BUILD_DIR/mutation/source, and its build directory is build/cpu in it. First the
tests must pass without a fault. A fault is found if a CI test of its library's test binary fails or times out.
It is an error if the text of a fault does not occur exactly once in its file, or if the fault does not compile.

Ends with a table. Exits with 0 if all faults are found, with 1 if one survives, with 2 after an error.
"""

import argparse
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# A line of ctest: " 3/10 Test  #3: data.Rows.a_case ....***Failed    0.05 sec", or another word after the stars.
FAILED = re.compile(r"Test\s+#\d+:\s+(\S+)\s*\.*\s*(?:Subprocess aborted)?\*\*\*(?!Skipped)(\w+)", re.MULTILINE)
COUNT = re.compile(r"tests failed out of (\d+)")


class Mistake(Exception):
    """A fault, or the copy, cannot be judged."""


def mutated(text, fault):
    """Returns `text` with the fault in it."""
    count = text.count(fault.text)
    if count != 1:
        raise Mistake(f"its text occurs {count} times in {fault.file}, expected once")
    if fault.text == fault.replacement:
        raise Mistake("its replacement equals its text")
    return text.replace(fault.text, fault.replacement)


def tracked(source):
    """Returns the names of the files that git tracks or does not ignore; outside a checkout, of all files."""
    done = subprocess.run(["git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode == 0 and done.stdout:
        return {name for name in done.stdout.decode().split("\0") if name and (source / name).is_file()}
    return files(source, {"build", "datasets", "runs", "install", ".git"})


def files(root, left_out):
    """Returns the names of all files, except those in the folders `left_out` of the root."""
    return {path.relative_to(root).as_posix() for folder in root.iterdir() if folder.name not in left_out
            for path in [folder, *folder.rglob("*")] if path.is_file()}


def copy_sources(source, copy):
    """Makes `copy` hold the files of `source`. An unchanged file keeps its time, so it is not built again."""
    copy.mkdir(parents=True, exist_ok=True)
    names = tracked(source)
    for name in names:
        to, data = copy / name, (source / name).read_bytes()
        if not to.is_file() or to.read_bytes() != data:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
            to.chmod((source / name).stat().st_mode)
    for name in files(copy, {"build"}) - names:  # for example a test that was removed meanwhile
        (copy / name).unlink()


def run(command, directory, timeout=None):
    """Returns (exit code, output). The code is None if the command timed out and was killed with its children."""
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        except BaseException:  # for example Ctrl-C, whose signal does not reach a new session
            os.killpg(process.pid, signal.SIGKILL)
            raise


class Copy:
    """Copy holds a copy of the sources, builds it and runs its tests."""

    def __init__(self, source, build, jobs):
        self.source = build / "mutation" / "source"
        self.build = self.source / "build" / "cpu"
        self.jobs = str(jobs)
        copy_sources(source, self.source)
        code, output = run(["cmake", "--preset", "cpu", "-DLOCKSTEP_TESTS=ON", "-DLOCKSTEP_BENCHMARKS=OFF"],
                           self.source)
        if code != 0:
            raise Mistake(f"the copy cannot be configured:\n{output[-4000:]}")

    def compile(self, binary):
        code, output = run(["cmake", "--build", self.build, "-j", self.jobs, "--target", f"{binary}_tests"],
                           self.source)
        if code != 0:
            raise Mistake(f"{binary}_tests cannot be built:\n{output[-4000:]}")

    def test(self, binary, timeout=None):
        """Returns the first test that fails twice, or None. One that passes alone is left out: the host is busy."""
        unsteady = []
        for _ in range(5):
            failed = self.first_failure(binary, unsteady, timeout)
            if failed is None or failed.startswith("timeout after"):
                return failed
            code, _ = run(["ctest", "-R", f"^{re.escape(failed.split()[0])}$"], self.build, timeout)
            if code != 0:
                return failed
            unsteady.append(re.escape(failed.split()[0]))
        raise Mistake(f"tests of {binary} fail intermittently: {', '.join(unsteady)}")

    def first_failure(self, binary, left_out, timeout):
        """Returns the first failed test, or None. It runs only tests whose names have two dots: those of GoogleTest."""
        without = ["-E", f"^({'|'.join(left_out)})$"] if left_out else []
        code, output = run(["ctest", "-L", "^ci$", "-R", rf"^{binary}\..*\.", *without, "-j", self.jobs,
                            "--stop-on-failure", "--no-tests=error"], self.build, timeout)
        if code == 0:
            return None
        if failed := FAILED.search(output):
            return failed[1] + (" (timeout)" if failed[2] == "Timeout" else "")
        if code is None:
            return f"timeout after {timeout:.0f} s"
        raise Mistake(f"the tests of {binary} failed, but the output names none:\n{output[-4000:]}")


def judge(copy, fault, timeout):
    """Returns the test that finds the fault, or None."""
    path = copy.source / fault.file
    text = path.read_text()
    path.write_text(mutated(text, fault))
    try:
        copy.compile(fault.binary)
        return copy.test(fault.binary, timeout)
    finally:
        path.write_text(text)


def table(rows):
    lines = [("fault", "library", "found by", "seconds"), ("---",) * 4, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
                     for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression for names of faults (default: all)")
    parser.add_argument("--library", default="")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--source", type=pathlib.Path, default=HERE.parents[1])
    parser.add_argument("--faults", type=pathlib.Path, default=HERE / "faults.py")
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    chosen = [fault for fault in runpy.run_path(str(arguments.faults))["FAULTS"]
              if re.search(arguments.only, fault.name) and arguments.library in ("", fault.library)]
    if not chosen:
        sys.exit("no fault matches --only and --library")

    mistakes, rows = [], []
    for fault in chosen:
        try:
            mutated((source / fault.file).read_text(), fault)
        except (Mistake, OSError) as error:
            mistakes.append(f"{fault.name}: {error}")
    if mistakes:
        print("\n".join(mistakes))
        return 2

    copy = Copy(source, arguments.build.resolve(), arguments.jobs)
    limits = {}
    for binary in dict.fromkeys(fault.binary for fault in chosen):
        begin = time.monotonic()
        copy.compile(binary)
        built = time.monotonic()
        if failed := copy.test(binary):
            raise Mistake(f"{failed} fails without a fault")
        tested = time.monotonic() - built
        limits[binary] = 120 + 5 * tested
        print(f"{binary}: built in {built - begin:.0f} s, all tests pass in {tested:.0f} s", flush=True)
    survived = 0
    for fault in chosen:
        begin = time.monotonic()
        try:
            finder = judge(copy, fault, limits[fault.binary])
            survived += finder is None
            found = finder or "SURVIVED"
        except Mistake as error:
            mistakes.append(f"{fault.name}: {error}")
            found = "ERROR"
        rows.append((fault.name, fault.library, found, f"{time.monotonic() - begin:.0f}"))
        print(f"{fault.name}: {found}, {rows[-1][3]} s", flush=True)
    print(table(rows))
    print("\n".join([*mistakes, f"{len(rows)} faults: {len(rows) - survived - len(mistakes)} found, {survived} survived, "
                                f"{len(mistakes)} not judged"]))
    return 2 if mistakes else 1 if survived else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Mistake as error:
        print(error)
        sys.exit(2)
