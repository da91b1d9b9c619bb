// DeviceBatch holds a micro-batch on the device. On a CPU it is the loader's buffer. On a GPU each
// batch is copied to fixed tensors, so that a captured step finds every batch at the same address.
#pragma once

#include "core/arena.h"
#include "core/stream.h"
#include "data/batch.h"

namespace lockstep {

class DeviceBatch {
 public:
  DeviceBatch() = default;
  // For batches of up to `sequences` of `sequence_length` tokens. On a GPU it allocates from
  // `arena`.
  DeviceBatch(std::int64_t sequences, std::int64_t sequence_length, Arena& arena) {
    if (arena.device().kind == Device::Kind::cpu) return;
    for (Tensor* t : {&inputs_, &targets_, &positions_, &document_start_})
      *t = arena.allocate("batch", DType::int32, {sequences, sequence_length});
  }

  // Returns the batch on the device. A copy runs in the order of the stream; release the buffer of
  // `batch` after it.
  Batch copy(Stream& stream, const Batch& batch) const {
    if (!inputs_) return batch;
    const auto send = [&](Tensor to, ConstTensor from) {
      if (!from) return Tensor{};
      to.shape = from.shape;
      stream.copy(to, from);
      return to;
    };
    return {.inputs = send(inputs_, batch.inputs),
            .targets = send(targets_, batch.targets),
            .positions = send(positions_, batch.positions),
            .document_start = send(document_start_, batch.document_start)};
  }

 private:
  Tensor inputs_, targets_, positions_, document_start_;
};

}  // namespace lockstep
