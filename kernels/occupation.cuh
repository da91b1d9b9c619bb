#pragma once

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

// Occupation holds multiprocessors of a GPU, as collectives of NCCL do in a step. An urgent kernel
// has one block for each, which takes all its shared memory.
class Occupation {
 public:
  Occupation(Device gpu, int multiprocessors);
  Occupation(const Occupation&) = delete;
  Occupation& operator=(const Occupation&) = delete;
  ~Occupation();  // ends them

  // Begins to hold them, for some ten seconds at most. The GPU should be idle, so that the blocks
  // start before other work. Until the end no kernel should be launched for the first time: to load
  // its code, CUDA may wait for all running kernels.
  void begin();
  // Waits until the blocks have ended.
  void end();

 private:
  void request_stop();

  int multiprocessors_;
  Stream stream_;  // reused: a new stream may share the hardware queue of another
  Arena pinned_;
  Tensor stop_;  // [1]; the blocks end when it is not 0
};

}  // namespace lockstep
