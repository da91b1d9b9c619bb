// The instructions of kernels/ptx.cuh, lane by lane. They are defined in ptx.cpp, because code that
// a .cu file includes is compiled with a call for each memory access.
#pragma once

namespace simt {

// mma.sync.m16n8k16 of bf16. Sums are in the order of k; tensor cores have their own order.
void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

// ldmatrix of `count` matrices; the first 8 * count lanes give rows.
void load_matrices(unsigned* to, int count, unsigned row, bool transposed);
unsigned shared_address(const void* p);

float exp2_approximate(float x);
unsigned pack_bf16(float first, float second);

}  // namespace simt
