// Kernels with one mistake each, and one without. Each sums 64 numbers in one block.
#pragma once

#include "core/stream.h"

namespace lockstep::testing {

enum class Mistake : std::uint8_t {
  none,
  no_barrier,              // threads read what another warp may not have written yet
  no_barrier_behind_read,  // shared memory is written again while others read it
  barrier_not_for_all,     // half of the threads do not reach a barrier
  ended_before_barrier,    // half of the threads end before a barrier
  write_behind_the_end,    // of the output
  read_behind_the_end,     // of the input
  read_before_the_begin,
  shared_behind_the_end,   // of the static array
  dynamic_behind_the_end,  // of the dynamic memory
  shared_never_written,
  lane_not_in_mask,  // a shuffle without its caller in the mask
  mask_of_ended_lanes,
  masks_differ,
  shuffle_from_outside,  // from a lane that the mask leaves out
  blocks_write_the_same,
  misaligned_pack,
};

void sum_with(Mistake mistake, Stream& stream, Tensor sum, ConstTensor values);

}  // namespace lockstep::testing
