// This file wraps instructions that C++ cannot express. It is the only place with inline PTX. If
// the calling warp acts as one (mma, matrices), all 32 lanes call together. A register holds two
// neighbouring bf16, the first in its lower half. With l the lane, r = l / 4 and c = l % 4:
//   matrix [8, 8]:  lane l has row r, columns 2 c and 2 c + 1
//   a [16, 16]:     registers 0 to 3 are the quarters [8, 8] (0, 0), (1, 0), (0, 1), (1, 1)
//   b [16, 8]:      registers 0 and 1 are the halves [8, 8], each transposed
//   d [16, 8] fp32: 0 and 1 are row r, columns 2 c and 2 c + 1; 2 and 3 are those of row r + 8
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include <cuda_runtime.h>

#ifndef __CUDACC__
#include <simt_ptx.h>
#endif

namespace lockstep::ptx {

// Returns the thread's number in its block, which has one dimension. It is read again at each call,
// so that values derived from it do not occupy registers through loops that need all registers.
__device__ inline int thread() {
#ifdef __CUDACC__
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  __builtin_assume(0 <= index && index < 1024);
  return index;
#else
  return static_cast<int>(threadIdx.x);
#endif
}
__device__ inline int lane() {
  return thread() % 32;
}

// Computes d += a b.
__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  simt::mma(d, a, b0, b1);
#endif
}

// Returns the address within shared memory, in bytes, of a pointer to dynamic shared memory.
__device__ inline unsigned shared_address(const void* p) {
#ifdef __CUDACC__
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
#else
  return simt::shared_address(p);
#endif
}

// Loads four matrices [8, 8] from shared memory. Lane l passes the address of row l % 8 of matrix l
// / 8, a multiple of 16.
__device__ inline void load_matrices(unsigned (&to)[4], unsigned row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
#else
  simt::load_matrices(to, 4, row, false);
#endif
}

// Does the same, with each matrix transposed.
__device__ inline void load_matrices_transposed(unsigned (&to)[4], unsigned row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
#else
  simt::load_matrices(to, 4, row, true);
#endif
}

// Starts to copy kBytes (4, 8 or 16) from global to shared memory, or zeros if not `exists`: then
// `global` is not read. The calling thread sees the bytes after wait_for_copies, other threads
// after a barrier that follows it.
template <int kBytes>
__device__ inline void copy_async(void* shared, const void* global, bool exists) {
#ifdef __CUDACC__
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(exists ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(kBytes), "r"(exists ? kBytes : 0)
                 : "memory");
#else
  simt::copy_async(shared, global, kBytes, exists ? kBytes : 0);
#endif
}

// Makes the thread's copies since the last call a group.
__device__ inline void commit_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::commit_copies();
#endif
}

// Waits until at most kInFlight of the thread's groups are in flight.
template <int kInFlight>
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight) : "memory");
#else
  simt::wait_copies(kInFlight);
#endif
}

// Computes 2^x with a relative error below 2^-22; 0 for -infinity.
__device__ inline float exp2_approximate(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return simt::exp2_approximate(x);
#endif
}

// Packs two numbers as bf16, rounded to nearest even, into a register of a fragment.
__device__ inline unsigned pack_bf16(float first, float second) {
#ifdef __CUDACC__
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return simt::pack_bf16(first, second);
#endif
}

}  // namespace lockstep::ptx
