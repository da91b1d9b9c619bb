#!/usr/bin/env python3
"""Reads what ranks.sh measured.

usage: ranks.py overlap TRACE.csv          how long kernels of communication wait
       ranks.py path TRACE.csv             copy engines or kernels, by stream
       ranks.py across CLUSTER.json DOMAINS   times of all-to-all over that many NVLink domains

TRACE.csv is the output of `nsys stats --report cuda_gpu_trace --format csv` for one rank. Only rows between the
first and the last update of the optimizer count: whole steps, without the choice of matmul algorithms.
"""

import collections
import csv
import json
import math
import re
import statistics
import sys

Row = collections.namedtuple("Row", "begin end stream kind name bytes")
# By name of the kernel or copy, in this order. nsys calls a copy by a copy engine between GPUs Peer-to-Peer, or
# Device-to-Device if the peer's memory is mapped; both are accepted.
KINDS = (("pack", r"PackPieces"), ("sum", r"AddPieces"), ("collective", r"nccl\w*Kernel"),
         ("copy", r"memcpy (Peer-to-Peer|Device-to-Device)"), ("update", r"adamw_control"),
         ("other", r"lockstep|cudnn|fmha|flash"), ("matmul", r"nvjet|gemm|cutlass"))
PEER_BYTES = (26 << 10, 52 << 10, 416 << 10)


def kind_of(name):
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other")


def read(path):
    """Returns the rows of whole steps in the order of time."""
    with open(path, errors="replace") as file:
        lines = list(file)
    begin = next(i for i, line in enumerate(lines) if line.startswith("Start"))
    rows = []
    for row in csv.DictReader(lines[begin:]):
        row = {name.split(" (")[0]: value for name, value in row.items() if name}
        start, took = int(row["Start"]), int(row["Duration"])
        rows.append(Row(start, start + took, int(row["Strm"]), kind_of(row["Name"]), row["Name"],
                        float(row["Bytes"] or 0)))
    rows.sort()
    updates = [row.end for row in rows if row.kind == "update"]
    if len(updates) < 2:
        sys.exit(f"ranks.py: {path}: {len(updates)} updates of the optimizer, expected at least 2")
    return [row for row in rows if updates[0] <= row.begin < updates[-1]]


def named(rows):
    """Returns the rows of each stream by the stream's name, which follows from its kernels."""
    streams = collections.defaultdict(list)
    for row in rows:
        streams[row.stream].append(row)
    compute = max(streams, key=lambda s: sum(r.end - r.begin for r in streams[s] if r.kind == "matmul"))
    found = {}
    for stream, of in sorted(streams.items()):
        kinds = {row.kind for row in of}
        name = ("compute" if stream == compute else "scatters" if "pack" in kinds else
                "across" if "sum" in kinds else "gathers" if kinds & {"collective", "copy"} else "other")
        found[f"{name} (stream {stream})"] = of
    return found


def beside(begin, end, matmuls):
    """Returns the part of the interval in which a matmul runs."""
    return sum(max(0, min(end, m.end) - max(begin, m.begin)) for m in matmuls)


def overlap(path):
    streams = named(read(path))
    matmuls = [row for name, rows in streams.items() if name.startswith("compute") for row in rows
               if row.kind == "matmul"]
    print(f"{'stream':24} {'from':>10} {'to':>10} {'gaps':>6} {'median us':>10} {'most us':>9} {'all ms':>8} "
          f"{'beside matmuls ms':>18}")
    for name, rows in streams.items():
        if name.startswith(("compute", "other")):
            continue
        gaps = collections.defaultdict(list)
        for before, after in zip(rows, rows[1:]):
            pair = tuple("collective" if row.kind == "copy" else row.kind for row in (before, after))
            if pair != ("collective", "collective"):
                gaps[pair].append((before.end, max(before.end, after.begin)))
        for (first, second), of in gaps.items():
            took = [end - begin for begin, end in of]
            print(f"{name:24} {first:>10} {second:>10} {len(of):6} {statistics.median(took) / 1e3:10.1f} "
                  f"{max(took) / 1e3:9.1f} {sum(took) / 1e6:8.3f} "
                  f"{sum(beside(*gap, matmuls) for gap in of) / 1e6:18.3f}")
    print("From pack to collective and from collective to sum, the second kernel was ready: these gaps are waits.\n"
          "From sum to pack includes the time until the next chunk or unit is ready.")


def path_of(path):
    print(f"{'stream':24} {'NCCL kernels':>12} {'copies':>8} {'copied MB':>10}  path")
    for name, rows in named(read(path)).items():
        kernels = collections.Counter(row.name.split("(")[0] for row in rows if row.kind == "collective")
        copies = [row for row in rows if row.kind == "copy" and row.bytes > 0]  # 0: flags of NCCL
        if not kernels and not copies:
            continue
        words = (["copy engines"] if copies else []) + [f"{n} x {k}" for k, n in kernels.items()]
        print(f"{name:24} {sum(kernels.values()):12} {len(copies):8} {sum(row.bytes for row in copies):10.1f}  "
              f"{', '.join(words)}")
    print("Copies on the stream compute may be Lockstep's own.")


def seconds(times, received):
    """Returns the time on the line between the nearest sizes, in logarithms, as LinkTime::seconds."""
    above = next((i for i, time in enumerate(times) if time["bytes"] >= received), None)
    if above == 0:
        return times[0]["seconds"]
    if above is None:
        return times[-1]["seconds"] * received / times[-1]["bytes"]
    low, high = times[above - 1], times[above]
    share = math.log(received / low["bytes"]) / math.log(high["bytes"] / low["bytes"])
    return low["seconds"] * (high["seconds"] / low["seconds"]) ** share


def across(path, domains):
    with open(path) as file:
        links = [link for link in json.load(file)["links"] if link["collective"] == "all_to_all"
                 and link["domains"] == domains and (domains == 1 or link["ranks"] == domains)]
    if not links:
        sys.exit(f"ranks.py: {path}: no all_to_all over {domains} domains")
    print(f"{'all_to_all':24} {'for each peer':>14} {'us':>9} {'GB/s received':>14}")
    for link in links:
        for each in PEER_BYTES:
            received = each * (link["ranks"] - 1)
            took = seconds(link["times"], received)
            small = "  (the time of the least measured size)" if received < link["times"][0]["bytes"] else ""
            print(f"{link['ranks']:3} ranks, {'beside' if link['beside'] else 'alone':12} {each >> 10:10} KiB "
                  f"{took * 1e6:9.1f} {received / took / 1e9:14.2f}{small}")


def main():
    what, path = sys.argv[1:3]
    if what == "overlap":
        overlap(path)
    elif what == "path":
        path_of(path)
    else:
        across(path, int(sys.argv[3]))


if __name__ == "__main__":
    main()
