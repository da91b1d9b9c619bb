#!/usr/bin/env python3
"""Counts test cases in CTest's JUnit files.

usage: test_summary.py NAME=FILE...

Prints:
  - the seconds of compiling by target, from Ninja's log in the directory of FILE
  - the seconds of each test binary and of the slowest cases
  - each skipped case with its reason, and each failed case
  - `N passed, N failed, N skipped`
Exits with 1 if a case failed or none passed.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

# The reason of a skipped case, as GoogleTest prints it, and as scripts and test mains print it.
REASONS = [re.compile(r": Skipped\n(.+?)\n+\[  SKIPPED \]", re.DOTALL),
           re.compile(r"^skipped: *(.+)$", re.IGNORECASE | re.MULTILINE)]


def reason(case):
    text = case.findtext("system-out") or ""
    for pattern in REASONS:
        found = pattern.search(text)
        if found:
            return " ".join(found.group(1).split())
    return "disabled" if case.get("status") == "disabled" else "no reason given"


def verdict(case):
    """Returns passed, failed or skipped. A case that CTest could not start has failed."""
    status = case.get("status")
    if status == "run":
        return "passed"
    skipped = case.find("skipped")
    said = skipped.get("message", "") if skipped is not None else ""
    if status == "disabled" or (status == "notrun" and said.startswith("SKIP_")):
        return "skipped"
    return "failed"


def print_seconds(what, seconds, most):
    """Prints the largest of seconds, a Counter. Cases run in parallel, so sums exceed the elapsed time."""
    largest = [f"{name} {value:.0f}" for name, value in seconds.most_common(most) if value >= 1]
    if largest:
        print(f"seconds  {what}: {', '.join(largest)}")


def compiling(log):
    """Returns the seconds by target of the last compilation of each output."""
    seconds = {}
    for line in log.read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    targets = collections.Counter()
    for output, value in seconds.items():
        if found := re.search(r"CMakeFiles/([^/]+)\.dir/", output):
            targets[found[1]] += value
    return targets


def main(arguments):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed, skipped = [], {}
    binaries, cases, targets = collections.Counter(), collections.Counter(), collections.Counter()
    for name, path in (argument.split("=", 1) for argument in arguments):
        log = pathlib.Path(path).parent / ".ninja_log"
        if log.exists():
            targets.update({f"{name}: {target}": value for target, value in compiling(log).items()})
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            result = verdict(case)
            counts[result] += 1
            title = f"{name}: {case.get('name')}"
            cases[title] = float(case.get("time") or 0)
            binaries[title.split(".")[0]] += cases[title]
            if result == "failed":
                failed.append(title)
            elif result == "skipped":
                skipped.setdefault(reason(case), []).append(title)
    print_seconds("of compiling", targets, 15)
    print_seconds("by test binary", binaries, 15)
    print_seconds("of the slowest cases", cases, 15)
    for why, titles in skipped.items():
        more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
        print(f"skipped  {titles[0]}{more}: {why}")
    for title in failed:
        print(f"FAILED   {title}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 0 if counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
