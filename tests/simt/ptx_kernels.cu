#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/ptx.cuh"
#include "tests/simt/ptx_kernels.cuh"

namespace lockstep::testing {
namespace {

__global__ void multiply_kernel(float* d, const BFloat16* a, const BFloat16* b,
                                bool b_is_transposed) {
  auto* left = dynamic_shared<BFloat16>();  // [16, 16]
  auto* right = left + 256;                 // the same
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32)
    left[i] = a[i];
  // Two matrices are enough; the lanes of the others give addresses of rows of zeros.
  for (int i = lane; i < 256; i += 32)
    right[i] = i < 128 ? b[i] : BFloat16{0};
  __syncwarp();
  unsigned x[4], y[4];
  ptx::load_matrices(x, ptx::shared_address(left + lane % 16 * 16 + lane / 16 * 8));
  if (b_is_transposed)  // [8, 16]: the halves are next to each other
    ptx::load_matrices(y, ptx::shared_address(right + lane % 8 * 16 + lane / 8 % 2 * 8));
  else  // [16, 8]: one below the other
    ptx::load_matrices_transposed(y, ptx::shared_address(right + lane * 8));
  float sums[4];
  for (int i = 0; i < 4; ++i)
    sums[i] = d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
  ptx::mma(sums, x, y[0], y[1]);
  for (int i = 0; i < 4; ++i)
    d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

__global__ void copy_exp2_kernel(BFloat16* to, const float* from, int missing) {
  alignas(16) __shared__ float values[3 * 32 * 4];
  const int lane = static_cast<int>(threadIdx.x);
  float* row = values + 4 * lane;
  const bool exists = lane < 32 - missing;
  ptx::copy_async<16>(row, from + 4 * lane, exists);
  ptx::commit_copies();
  ptx::copy_async<8>(row + 128, from + 4 * lane, exists);
  ptx::copy_async<4>(row + 130, from + 4 * lane + 2, exists);
  ptx::copy_async<4>(row + 131, from + 4 * lane + 3, exists);
  ptx::commit_copies();
  ptx::wait_for_copies<1>();
  row[256] = row[0];  // the older group has arrived
  row[257] = row[1];
  ptx::wait_for_copies<0>();
  row[258] = row[130];
  row[259] = row[131];
  auto* pairs = reinterpret_cast<unsigned*>(to + 4 * lane);
  for (int i = 0; i < 2; ++i)
    pairs[i] = ptx::pack_bf16(ptx::exp2_approximate(row[256 + 2 * i]),
                              ptx::exp2_approximate(row[257 + 2 * i]));
}

__global__ void copy_kernel(PtxMistake mistake, float* to, const float* from) {
  alignas(16) __shared__ float values[64];
  auto* matrices = dynamic_shared<unsigned>();  // [64, 4]
  const auto is = [&](PtxMistake m) { return mistake == m; };
  const int thread = static_cast<int>(threadIdx.x);
  ptx::copy_async<4>(values + thread, from + thread, true);
  ptx::commit_copies();
  if (!is(PtxMistake::no_wait)) ptx::wait_for_copies<0>();
  if (!is(PtxMistake::no_barrier)) __syncthreads();
  const float v = values[63 - thread];

  unsigned x[4];
  for (int i = 0; i < 4; ++i)
    matrices[4 * thread + i] = 0;
  if (!is(PtxMistake::read_before_sync)) __syncthreads();
  const int row = is(PtxMistake::read_before_sync) ? 63 - thread : thread;
  ptx::load_matrices(
      x, ptx::shared_address(matrices + 4 * row + (is(PtxMistake::misaligned_row) ? 1 : 0)));
  float sums[4] = {};
  if (!is(PtxMistake::lane_stays_away) || thread != 7) ptx::mma(sums, x, 0, 0);
  to[63 - thread] = v + sums[0];
}

}  // namespace

void multiply_on_gpu(Stream& stream, Tensor d, ConstTensor a, ConstTensor b, bool b_is_transposed) {
  launch(stream, {1, 32, 1024}, multiply_kernel, d.as<float>(), a.as<BFloat16>(), b.as<BFloat16>(),
         b_is_transposed);
}

void copy_exp2_on_gpu(Stream& stream, Tensor to, ConstTensor from, int missing) {
  launch(stream, {1, 32}, copy_exp2_kernel, to.as<BFloat16>(), from.as<float>(), missing);
}

void copy_with(PtxMistake mistake, Stream& stream, Tensor to, ConstTensor from) {
  launch(stream, {1, 64, 1024}, copy_kernel, mistake, to.as<float>(), from.as<float>());
}

}  // namespace lockstep::testing
