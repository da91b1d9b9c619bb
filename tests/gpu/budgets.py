#!/usr/bin/env python3
"""Checks the registers and shared memory of every kernel, as ptxas reports them, for the launches of the tests.

usage: budgets.py --nvcc NVCC --source DIR --tests CUDA_TESTS --recorder RECORDER [--newest COMMITS]

Registers limit how many threads run at once, and a spill causes traffic that byte counts do not show.
- No kernel has a stack frame or spills, except those in WAIVERS.
- Each line of BUDGETS is (file, kernel, most registers, most bytes of static shared memory).
- CUDA_TESTS, with RECORDER (recorder.cpp) instead of CUDA's libraries, launches the kernels with the
  shapes of the tests. A block has at most the threads of its kernel's launch bounds. Its registers and
  shared memory, static and dynamic, fit. At least as many blocks as in BLOCKS share a multiprocessor.
The limits are those of an H100 or H200 (90a). The files in ELSEWHERE are also compiled for an A100 (80) and
a B200 (100a), because they have special instructions or the largest kernels.
--newest checks only the kernels whose sources the newest commits changed.
"""

import argparse
import collections
import concurrent.futures
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

BUDGETS = [
    ("adamw", "adamw_update_kernel<4, true, false, BFloat16, float>", 40, 0),
    ("adamw", "adamw_update_kernel<4, true, true, BFloat16, float>", 48, 128),
    ("adamw", "adamw_update_kernel<8, false, false, BFloat16, BFloat16>", 64, 0),
    ("adamw", "adamw_update_kernel<8, false, true, BFloat16, BFloat16>", 64, 128),
    ("attention", "row_statistics_kernel<BFloat16, 8>", 32, 0),
    ("attention_decode", "decode_kernel<BFloat16, 8>", 128, 0),
    ("attention_flash", "flash_forward_kernel<64>", 255, 1024),
    ("attention_flash", "flash_forward_kernel<128>", 255, 1024),
    ("attention_flash_backward", "flash_queries_kernel<64>", 255, 0),
    ("attention_flash_backward", "flash_queries_kernel<128>", 255, 0),
    ("attention_flash_backward", "flash_keys_kernel<64>", 255, 0),
    ("attention_flash_backward", "flash_keys_kernel<128>", 255, 0),
    ("cross_entropy", "cross_entropy_gradient_kernel<BFloat16, 8, false>", 64, 128),
    ("cross_entropy", "cross_entropy_gradient_kernel<BFloat16, 8, true>", 64, 0),
    ("cross_entropy", "cross_entropy_parts_kernel<BFloat16, 8>", 64, 128),
    ("cross_entropy", "cross_entropy_loss_kernel<float, 4>", 64, 128),
    ("embedding", "embedding_forward_kernel<BFloat16, 8>", 40, 0),
    ("embedding", "add_runs_kernel<BFloat16, 8>", 64, 256),
    ("gelu", "packs_kernel<8, Forward<BFloat16> >", 32, 128),
    ("gelu", "packs_kernel<8, Backward<BFloat16> >", 40, 128),
    ("layernorm", "layernorm_forward_kernel<BFloat16, 4, 8>", 64, 2048),
    ("layernorm", "layernorm_backward_kernel<BFloat16, 4, 8>", 128, 2048),
    ("pieces", "packs_kernel<4, AddPieces<float, float, 8> >", 40, 128),
    ("pieces", "packs_kernel<8, AddPieces<BFloat16, BFloat16, 0> >", 64, 128),
    ("pieces", "packs_kernel<8, AddPieces<BFloat16, BFloat16, 8> >", 48, 128),
    ("pieces", "packs_kernel<8, PackPieces<BFloat16, BFloat16> >", 32, 0),
    ("qk_norm", "qk_norm_forward_kernel<BFloat16, 1, 8>", 40, 0),
    ("qk_norm", "qk_norm_backward_kernel<BFloat16, 1, 8>", 80, 1024),
    ("quantize", "quantize_tensor_kernel<Fp8<3, 7, 126u, 127u> >", 64, 16384),
    ("quantize", "quantize_rows_kernel<Fp8<3, 7, 126u, 127u> >", 64, 25088),
    ("quantize", "quantize_blocks_kernel<Fp8<3, 7, 126u, 127u> >", 64, 16512),
    ("reduce", "absmax_kernel<BFloat16, 8>", 64, 128),
    ("reduce", "sum_of_squares_kernel<BFloat16, 8>", 64, 256),
    ("rmsnorm", "rmsnorm_forward_kernel<BFloat16, 4, 8>", 64, 2048),
    ("rmsnorm", "rmsnorm_backward_kernel<BFloat16, 4, 8>", 128, 2048),
    ("rope", "rope_kernel<BFloat16, 8, false>", 40, 0),
    ("rope", "rope_kernel<BFloat16, 8, true>", 48, 128),
    ("swiglu", "swiglu_forward_kernel<BFloat16, 8>", 32, 128),
    ("swiglu", "swiglu_backward_kernel<BFloat16, 8>", 40, 128),
]
ELSEWHERE = {"attention_decode", "attention_flash", "attention_flash_backward", "quantize"}
# Accepted bytes of stack and of spilled registers, stored and loaded, by architecture, with the reason.
WAIVERS = {
    "flash_forward_kernel<128>": ({"80": 48, "90a": 24, "100a": 68},
                                  "a few registers, once for each block of 64 keys"),
    "decode_kernel<BFloat16, 1>": ({"100a": 60}, "heads whose size is no multiple of a pack"),
    "decode_kernel<float, 1>": ({"100a": 52}, "heads whose size is no multiple of a pack"),
    "rope_table_kernel": ({"90a": 48}, "sine and cosine of large angles; runs once, before the first step"),
}
# Blocks that must share a multiprocessor, by the design of a kernel.
BLOCKS = {
    "flash_forward_kernel<64>": 2,
    "flash_forward_kernel<128>": 2,
    "flash_queries_kernel<64>": 2,
    "flash_queries_kernel<128>": 2,
    "flash_keys_kernel<64>": 2,
    "flash_keys_kernel<128>": 2,
    "plain_dkdv_kernel<float, 2>": 3,
    "rmsnorm_forward_kernel<BFloat16, 4, 8>": 4,
    "rmsnorm_backward_kernel<BFloat16, 4, 8>": 2,
    "layernorm_forward_kernel<BFloat16, 4, 8>": 4,
    "layernorm_backward_kernel<BFloat16, 4, 8>": 2,
    "adamw_update_kernel<8, false, false, BFloat16, BFloat16>": 4,
    "cross_entropy_parts_kernel<BFloat16, 8>": 2,
    "cross_entropy_gradient_kernel<BFloat16, 8, false>": 2,
}
# Limits of an H100: of a multiprocessor, then of a block (MOST_SHARED).
REGISTERS, THREADS, SHARED, MOST_BLOCKS, MOST_SHARED = 65536, 2048, 228 << 10, 32, 227 << 10

# stack: its frame and spilled registers, in bytes; shared: static; threads: the launch bound.
Kernel = collections.namedtuple("Kernel", "registers stack shared threads")


def short(title):
    return re.sub(r"\(anonymous namespace\)::|lockstep::|cuda::|^void ", "", title).split("(")[0]


def demangled(text):
    return subprocess.run(["c++filt"], input=text, check=True, capture_output=True, text=True).stdout


def launch_bounds(cubin):
    """Threads of a block by kernel: EIATTR_MAX_THREADS in the section .nv.info.KERNEL."""
    sections, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    section = lambda i: struct.unpack_from("<IIQQQQ", cubin, sections + i * size)
    text = section(names)[4]
    bounds = {}
    for i in range(count):
        name, _, _, _, offset, length = section(i)
        name = cubin[text + name:cubin.index(b"\0", text + name)].decode()
        if not name.startswith(".nv.info."):
            continue
        at = offset
        while at < offset + length:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            if (form, attribute) == (4, 5):
                x, y, z = struct.unpack_from("<III", cubin, at + 4)
                bounds[name[len(".nv.info."):]] = x * y * z
            at += 4 + (value if form == 4 else 0)
    return bounds


def kernels_of(nvcc, source, name, architecture):
    """The Kernel of each kernel of a file, by its short title."""
    with tempfile.NamedTemporaryFile() as cubin:
        said = subprocess.run(
            [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-ftz=true", "-O3", "-DNDEBUG", "-I", source,
             "-gencode", f"arch=compute_{architecture},code=sm_{architecture}", "-Xptxas", "-v", "-cubin",
             "-o", cubin.name, f"{source}/kernels/{name}.cu"],
            check=True, capture_output=True, text=True).stderr
        bounds = launch_bounds(pathlib.Path(cubin.name).read_bytes())
    kernels = {}
    for part in said.split("Compiling entry function '")[1:]:
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        mangled = part[:part.index("'")]
        kernels[short(demangled(mangled))] = Kernel(
            number(r"Used (\d+) registers"),
            number(r"(\d+) bytes stack") + number(r"(\d+) bytes spill stores") +
            number(r"(\d+) bytes spill loads"),
            number(r"(\d+) bytes smem"), bounds.get(mangled, 1024))
    return kernels


def code_of(text):
    """Text without comments and spaces, which do not change a kernel."""
    return "".join(re.sub(r"//[^\n]*", "", text).split())


def changed(source, newest):
    """The files of kernels whose code the newest commits changed, or that include a changed header of kernels, or
    of core with code for a GPU. All files if git does not know."""
    everything = sorted(path.stem for path in pathlib.Path(source, "kernels").glob("*.cu"))

    def git(*arguments):
        return subprocess.run(["git", "-C", source, *arguments], capture_output=True, text=True)

    base = git("rev-list", "--max-count=1", f"--skip={newest}", "HEAD").stdout.strip()
    listed = git("diff", "--name-only", base, "--", "kernels", "core")
    if not base or listed.returncode != 0:
        return everything
    names = {name for name in listed.stdout.split()
             if not (path := pathlib.Path(source, name)).exists() or
             code_of(path.read_text()) != code_of(git("show", f"{base}:{name}").stdout)}

    def touched(name, seen):
        seen.add(name)
        text = pathlib.Path(source, name).read_text()
        included = re.findall(r'#include "((?:kernels/|core/(?:dtype|fp8|integer|mix|philox)\.)[^"]+)"', text)
        included = {file for file in included if pathlib.Path(source, file).exists()}
        return name in names or any(touched(i, seen) for i in included - seen)
    return [name for name in everything if touched(f"kernels/{name}.cu", set())]


def blocks_of(kernel, threads, dynamic):
    """The number of blocks that share a multiprocessor."""
    up = lambda n, step: -(-n // step) * step
    warps = up(threads, 32) // 32
    shared = up(kernel.shared + dynamic, 128) + 1024
    return min(REGISTERS // (up(kernel.registers * 32, 256) * up(warps, 4)), THREADS // (32 * warps),
               SHARED // shared, MOST_BLOCKS)


def launches_of(tests, recorder, source):
    """(title, threads of a block, dynamic bytes) of all launches of the tests on one GPU."""
    with tempfile.TemporaryDirectory() as work:
        record = os.path.join(work, "record")
        os.mkfifo(record)
        with subprocess.Popen([tests, "--gtest_filter=-*Layout*:*Ranks*:*Collectives*"], cwd=source,
                              env=dict(os.environ, LD_PRELOAD=recorder, LOCKSTEP_RECORD=record,
                                       LOCKSTEP_SMALL_SHAPES="1"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), open(record) as lines:
            launches = {tuple(line.split()[3:7]) for line in lines if line.split()[1] == "launch"}
    names = sorted({name for name, *_ in launches})
    titles = dict(zip(names, demangled("\n".join(names)).splitlines()))
    count = lambda extent: math.prod(int(n) for n in extent.split(","))
    return sorted({(short(titles[name]), count(block), int(dynamic))
                   for name, _, block, dynamic in launches})


class Verdict:
    failed = False

    def row(self, fits, text):
        self.failed = self.failed or not fits
        print(f"{'ok    ' if fits else 'FAILED'} {text}")


def check_compiled(verdict, files):
    """files: kernels_of() by (architecture, file)."""
    for (architecture, name), kernels in files.items():
        for title, kernel in kernels.items():
            most = WAIVERS.get(title, ({}, ""))[0].get(architecture, 0)
            if kernel.stack > most:
                verdict.row(False, f"{architecture} {title} of {name}.cu: {kernel.stack} bytes of stack and "
                            f"spilled registers, {most} allowed")
        for file, title, most_registers, most_shared in BUDGETS:
            if file != name:
                continue
            if title not in kernels:
                verdict.row(False, f"{name}.cu has no {title}, but {', '.join(kernels)}")
                continue
            kernel = kernels[title]
            verdict.row(kernel.registers <= most_registers and kernel.shared <= most_shared,
                        f"{architecture} {title}: {kernel.registers} of {most_registers} registers, "
                        f"{kernel.shared} of {most_shared} bytes shared")
    print(f"{sum(len(kernels) for kernels in files.values())} kernels compiled")


def check_launches(verdict, kernels, launches, some):
    """some: only changed kernels are given."""
    fewest = {}
    for title, threads, dynamic in launches:
        if some and title not in kernels:
            continue
        kernel = kernels[title]
        blocks = blocks_of(kernel, threads, dynamic)
        if threads > kernel.threads or blocks == 0 or kernel.shared + dynamic > MOST_SHARED:
            verdict.row(False, f"{title}: a launch of {threads} threads of {kernel.threads}, "
                        f"{kernel.registers} registers, {kernel.shared} + {dynamic} bytes shared")
        if title not in fewest or blocks < fewest[title][0]:
            fewest[title] = blocks, threads, dynamic
    for title, least in BLOCKS.items():
        if some and title not in kernels:
            continue
        blocks, threads, dynamic = fewest.get(title, (0, 0, 0))
        verdict.row(blocks >= least, f"{title}: {blocks} blocks a multiprocessor, {least} expected, "
                    f"of {threads} threads and {kernels[title].shared} + {dynamic} bytes shared")
    print(f"{len(launches)} launches of {len(fewest)} kernels of {len(kernels)}; no test launches:",
          *sorted(kernels.keys() - fewest.keys()), sep="\n  ")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2])
    for name in "nvcc", "source", "tests", "recorder":
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--newest", type=int)
    arguments = parser.parse_args()
    names = sorted(path.stem for path in pathlib.Path(arguments.source, "kernels").glob("*.cu"))
    if arguments.newest:
        names = changed(arguments.source, arguments.newest)
        if not names:
            print(f"skipped: the newest {arguments.newest} commits changed no kernel")
            return 77
    work = [("90a", name) for name in names]
    work += [(a, name) for a in ("80", "100a") for name in sorted(ELSEWHERE.intersection(names))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(lambda w: kernels_of(arguments.nvcc, arguments.source, w[1], w[0]), work)
        files = dict(zip(work, compiled))
    verdict = Verdict()
    check_compiled(verdict, files)
    kernels = {title: kernel for (architecture, _), file in files.items() if architecture == "90a"
               for title, kernel in file.items()}
    check_launches(verdict, kernels, launches_of(arguments.tests, arguments.recorder, arguments.source),
                   bool(arguments.newest))
    return 1 if verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())
