#!/usr/bin/env python3
"""Checks the tables of tests/gpu/ranks.py with a small trace, whose gaps are computed by hand."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

GPU = pathlib.Path(__file__).parents[1] / "gpu"
TRACE = GPU / "ranks_trace.csv"


def rows(*arguments):
    """Returns the words of each line."""
    done = subprocess.run([sys.executable, "-B", GPU / "ranks.py", *map(str, arguments)], check=True,
                          capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def expect(found, expected):
    assert expected in found, f"expected {expected} in {found}"


def check_overlap():
    found = rows("overlap", TRACE)
    scatters = ["scatters", "(stream", "15)"]
    # A matmul runs from 1010 to 1410 us, a pack to 1120, a collective from 1150 to 1250, a sum from 1400 to 1430.
    expect(found, [*scatters, "pack", "collective", "1", "30.0", "30.0", "0.030", "0.030"])
    expect(found, [*scatters, "collective", "sum", "1", "150.0", "150.0", "0.150", "0.150"])
    expect(found, [*scatters, "sum", "pack", "1", "70.0", "70.0", "0.070", "0.000"])
    assert not any(row[0] == "compute" for row in found), found


def check_path():
    found = rows("path", TRACE)
    expect(found, ["gathers", "(stream", "14)", "0", "1", "12.5", "copy", "engines"])
    expect(found, ["scatters", "(stream", "15)", "1", "0", "0.0", "1", "x", "ncclDevKernel_SendRecv"])


def check_steps(directory):
    """Work before the first update is not counted, and one update is no step."""
    begin = TRACE.read_text()
    file = directory / "trace.csv"
    early = '10,5,9,1,1,1,1,1,1,1,0,0,,,,,GPU (0),1,,99,"ncclDevKernel_AllGather_RING_LL(args)"\n'
    head, tail = begin.split("Name\n", 1)
    file.write_text(f"{head}Name\n{early}{tail}")
    assert rows("path", file) == rows("path", TRACE)
    file.write_text("\n".join(line for line in begin.splitlines() if not re.match("2000000,", line)))
    done = subprocess.run([sys.executable, "-B", GPU / "ranks.py", "path", file], check=False,
                          capture_output=True, text=True)
    assert done.returncode != 0 and "1 updates" in done.stderr, done


def check_across(directory):
    file = directory / "cluster.json"
    link = {"collective": "all_to_all", "ranks": 2, "domains": 2, "beside": True,
            "times": [{"bytes": 26 << 10, "seconds": 1e-5}, {"bytes": 416 << 10, "seconds": 4e-5}]}
    # 104 KiB lie in the middle in logarithms: 20 us; 52 KiB at a quarter: 10 us times 4^(1/4).
    file.write_text(json.dumps({"links": [link, dict(link, domains=1), dict(link, collective="all_gather")]}))
    found = [row[4:] for row in rows("across", file, 2)[1:]]
    assert found == [["KiB", "10.0", "2.66"], ["KiB", "14.1", "3.77"], ["KiB", "40.0", "10.65"]], found


def main():
    check_overlap()
    check_path()
    with tempfile.TemporaryDirectory() as directory:
        check_steps(pathlib.Path(directory))
        check_across(pathlib.Path(directory))


if __name__ == "__main__":
    main()
