#!/usr/bin/env python3
"""Checks what the hot kernels take of a multiprocessor, as ptxas reports it.

usage: budgets.py --nvcc NVCC --source DIR

Registers decide how many threads run at once; a spill makes traffic that no count of bytes shows.
Each line of BUDGETS is (file, kernel, most registers, most bytes of static shared memory). None of
them may spill, but for those in SPILLS, and each must be there. That is for an H100 or H200 (90a); the files
ELSEWHERE, which have the instructions that not every GPU has and the kernels that need most, are compiled
for an A100 (80) and a B200 (100a) too.
"""

import argparse
import re
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
# Bytes stored and loaded by architecture; forward's are a few registers, once for each block of 64 keys.
SPILLS = {"flash_forward_kernel<128>": {"80": 32, "90a": 16, "100a": 44}}


def resources(nvcc, source, name, architecture):
    """Of each kernel of a file: its registers, spilled bytes and static shared bytes."""
    with tempfile.NamedTemporaryFile() as cubin:
        said = subprocess.run(
            [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-ftz=true", "-O3", "-DNDEBUG", "-I", source,
             "-gencode", f"arch=compute_{architecture},code=sm_{architecture}", "-Xptxas", "-v", "-cubin",
             "-o", cubin.name, f"{source}/kernels/{name}.cu"],
            check=True, capture_output=True, text=True).stderr
    said = subprocess.run(["c++filt"], input=said, check=True, capture_output=True, text=True).stdout
    kernels = {}
    for part in said.split("Compiling entry function '")[1:]:
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        title = re.sub(r"\(anonymous namespace\)::|lockstep::|cuda::|^void ", "", part).split("(")[0]
        kernels[title] = (number(r"Used (\d+) registers"),
                          number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
                          number(r"(\d+) bytes smem"))
    return kernels


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2])
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--source", required=True)
    arguments = parser.parse_args()
    failed = False
    for architecture in "90a", "80", "100a":
        files = {}
        for name, kernel, most_registers, most_shared in BUDGETS:
            if architecture != "90a" and name not in ELSEWHERE:
                continue
            if name not in files:
                files[name] = resources(arguments.nvcc, arguments.source, name, architecture)
            if kernel not in files[name]:
                print(f"FAILED {name}.cu has no {kernel}, but {', '.join(files[name])}")
                failed = True
                continue
            registers, spilled, shared = files[name][kernel]
            most_spilled = SPILLS.get(kernel, {}).get(architecture, 0)
            fits = (registers <= most_registers and spilled <= most_spilled and
                    shared <= most_shared)
            failed = failed or not fits
            print(f"{'ok    ' if fits else 'FAILED'} {architecture} {kernel}: {registers} of "
                  f"{most_registers} registers, {spilled} of {most_spilled} bytes spilled, {shared} of "
                  f"{most_shared} bytes shared")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
