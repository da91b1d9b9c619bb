#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "tests/simt/planted.cuh"

namespace lockstep::testing {
namespace {

constexpr int kThreads = 64;

__global__ void sum_kernel(Mistake mistake, float* sum, const float* values) {
  __shared__ float partial[kThreads / 32];
  float* dynamic = dynamic_shared<float>();  // [kThreads]
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const auto is = [&](Mistake m) { return mistake == m; };

  int from = thread;
  if (is(Mistake::read_behind_the_end)) ++from;
  if (is(Mistake::read_before_the_begin)) --from;
  float v = values[from];
  if (is(Mistake::misaligned_pack)) {
    float pack[4];
    load(pack, values + thread % 4);
    v += pack[0] - pack[0];
  }

  int to = thread;
  if (is(Mistake::dynamic_behind_the_end)) ++to;
  if (!is(Mistake::shared_never_written) || thread != 5) dynamic[to] = v;
  if (is(Mistake::ended_before_barrier) && warp == 1) return;
  if (is(Mistake::barrier_not_for_all)) {
    if (warp == 0) __syncthreads();
  } else if (!is(Mistake::no_barrier)) {
    __syncthreads();
  }
  v = dynamic[kThreads - 1 - thread];
  if (is(Mistake::no_barrier_behind_read)) dynamic[thread] = v;

  unsigned mask = kAllLanes;
  if (is(Mistake::mask_of_ended_lanes) && lane == 7) return;
  if (is(Mistake::lane_not_in_mask)) mask = ~1u;
  if (is(Mistake::masks_differ) && lane < 8) mask = 0xff;
  int source = lane ^ 1;
  if (is(Mistake::shuffle_from_outside)) {
    mask = lane < 16 ? 0xffffu : 0xffff0000u;
    source = lane ^ 16;
  }
  v += __shfl_sync(mask, v, source);
  v = warp_sum(v) / 2;

  int slot = warp;
  if (is(Mistake::shared_behind_the_end)) slot += 1;
  if (lane == 0) partial[slot] = v;
  __syncthreads();
  if (thread != 0) return;
  sum[is(Mistake::write_behind_the_end) ? 1 : 0] = partial[0] + partial[1];
}

}  // namespace

void sum_with(Mistake mistake, Stream& stream, Tensor sum, ConstTensor values) {
  const unsigned blocks = mistake == Mistake::blocks_write_the_same ? 2 : 1;
  launch(stream, {blocks, kThreads, kThreads * sizeof(float)}, sum_kernel, mistake, sum.as<float>(),
         values.as<float>());
}

}  // namespace lockstep::testing
