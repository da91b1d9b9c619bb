#pragma once

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

// Occupation holds multiprocessors of a GPU, as collectives of NCCL do in a step: blocks of an
// urgent kernel take all shared memory of one each.
class Occupation {
 public:
  Occupation(Device gpu, int multiprocessors);
  Occupation(const Occupation&) = delete;
  Occupation& operator=(const Occupation&) = delete;
  ~Occupation() { tell_to_stop(); }  // after an error; else end() was called

  // Begins to hold them, for some ten seconds at most. The GPU should be idle, so that the blocks
  // start before other work. Until the end no kernel should be launched for the first time: to load
  // its code, CUDA may wait for all running kernels.
  void begin();
  // Waits until the blocks have ended.
  void end();

 private:
  void tell_to_stop();

  int multiprocessors_;
  Stream stream_;  // one for all times: a new stream may share the hardware queue of another
  Arena pinned_;
  Tensor stop_;  // [1], not 0: the blocks end
};

}  // namespace lockstep
