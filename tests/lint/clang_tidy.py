#!/usr/bin/env python3
"""Runs clang-tidy over every source of a build directory, in parallel, each source once.

usage: clang_tidy.py --build DIR [--only product|tests] [--newest SOURCES] [--analyzer] [--jobs N] [--list-times]

A source that is compiled once per instruction set is checked as its first, baseline command. What
passed is remembered under DIR/lint by a hash of all that clang-tidy reads of this repository, so a
second run checks only what changed. clang_tidy.sh calls this, with the version we agreed on.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def sources(build):
    """{file: compile command}; the first command of a file stands for all. What is compiled together counts as alone."""
    commands, entries = {}, []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        together = pathlib.Path(entry["file"])
        if together.parent.name != "Unity":
            entries.append(entry)
            continue
        for name in INCLUDE.findall(together.read_bytes()):
            file = name.decode()
            entries.append({**entry, "file": file, "command": entry["command"].replace(str(together), file)})
    for entry in entries:
        path = pathlib.Path(entry["file"])
        if path.suffix == ".cpp" and ROOT in path.parents and build not in path.parents:
            commands.setdefault(path, entry)
    return commands


def with_includes(path, seen):
    """`path` and every file of the repository that it includes, directly or not."""
    if path in seen or not path.is_file():
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_bytes()):
        for folder in (ROOT, path.parent):
            with_includes((folder / name.decode()).resolve(), seen)
    return seen


def changed(commands, most):
    """The commands of at most `most` sources, those first that the working tree and the newest commits changed; for a
    header that none of them includes, one source that includes it."""
    names = []
    for arguments in (["diff", "--name-only", "HEAD"], ["log", "--format=", "--name-only"]):
        listed = subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, text=True)
        if listed.returncode != 0:
            return commands
        names += listed.stdout.split()
    includes = {path: with_includes(path, set()) for path in commands}
    chosen, seen = {}, set()
    for file in dict.fromkeys(ROOT / name for name in names):
        if file.suffix == ".h" and file not in seen:
            file = next((path for path in commands if file in includes[path]), file)
        if file in commands and len(chosen) < most:
            chosen[file] = commands[file]
            seen |= includes[file]
    return chosen


def fingerprint(entry, path, salt):
    digest = hashlib.sha256(salt)
    digest.update(entry.get("command", "").encode())
    configurations = [folder / ".clang-tidy" for folder in path.parents]
    for file in sorted(with_includes(path, set())) + [c for c in configurations if c.is_file()]:
        digest.update(str(file).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def check(path, stamp, arguments):
    """Returns (path, complaints, seconds)."""
    if stamp.exists():
        return path, "", 0.0
    start = time.monotonic()
    done = subprocess.run(
        ["clang-tidy", "--quiet", *arguments, str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode == 0:
        stamp.touch()
        return path, "", time.monotonic() - start
    return path, done.stdout + done.stderr, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=("product", "tests"), help="of the sources (default: all)")
    parser.add_argument("--newest", type=int, metavar="SOURCES", help="the sources that changed last, at most this many")
    parser.add_argument("--analyzer", action="store_true", help="clang-analyzer-* in place of the other checks")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--list-times", action="store_true", help="print each source's seconds")
    options = parser.parse_args()
    build = options.build.resolve()
    work = build / "lint"
    work.mkdir(exist_ok=True)
    commands = sources(build)
    if not commands:
        print(f"no source of {ROOT} in {build}/compile_commands.json")
        return 1
    (work / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    # Algorithms of libstdc++ 12 call a function of its own that it deprecates; g++ has warnings of its own.
    arguments = ["-p", str(work), "--extra-arg=-Wno-deprecated-declarations",
                 "--extra-arg=-Wno-unknown-warning-option"]
    if options.only:
        of_tests = options.only == "tests"
        commands = {p: e for p, e in commands.items() if (ROOT / "tests" in p.parents) == of_tests}
    if options.newest:
        commands = changed(commands, options.newest)
    if options.analyzer:
        # Padding is wanted where members keep to their own cache lines.
        arguments.append("--checks=clang-analyzer-*,-clang-analyzer-optin.performance.Padding")
    version = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE).stdout
    salt = version + " ".join(arguments).encode()

    stamps = {path: work / fingerprint(entry, path, salt) for path, entry in commands.items()}
    for old in work.iterdir():  # of sources that changed; a week keeps both branches of a day's work
        if len(old.name) == 64 and time.time() - old.stat().st_mtime > 7 * 86400:
            old.unlink()

    failed, seconds, said = 0, 0.0, set()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The largest first, so that none of them is alone at the end.
        order = sorted(commands, key=lambda path: -path.stat().st_size)
        for path, complaints, took in pool.map(lambda p: check(p, stamps[p], arguments), order):
            seconds += took
            if options.list_times:
                print(f"{took:6.1f} s  {path.relative_to(ROOT)}")
            if complaints:
                failed += 1
                if complaints not in said:
                    print(f"--- {path.relative_to(ROOT)}\n{complaints}")
                said.add(complaints)
    print(f"clang-tidy: {len(commands)} sources, {failed} failed, {seconds:.0f} s of one core")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
