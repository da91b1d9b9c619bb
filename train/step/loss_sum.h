// LossSum: the sum of an evaluation, in types that stay exact enough for any number of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/function_ref.h"
#include "core/mirror.h"
#include "data/loader.h"
#include "model/transformer.h"

namespace lockstep {

struct LossSum {
  double loss = 0;  // nats
  std::int64_t tokens = 0;

  double mean() const;  // NaN without a token
};

// Number of whole windows in an evaluation of at most `tokens` tokens, at least 1; 0: all windows.
std::int64_t most_windows(std::int64_t tokens, std::int64_t sequence_length);

// Sums both over all ranks, in place. Tensor parallel ranks hold the same tokens and count once.
//   loss [1] fp32, tokens [1] int32
void sum_over_ranks(Stream& stream, Comms& comms, Tensor loss, Tensor tokens);

// LossReader reads losses of evaluation micro-batches from the device. On a GPU two may be
// enqueued, so that the GPU computes one while the host reads the previous one.
class LossReader {
 public:
  LossReader() = default;
  // Overwrites loss ([1] fp32) and tokens ([1] int32). On a GPU, host memory comes from `pinned`.
  LossReader(Tensor loss, Tensor tokens, Arena& pinned);

  // Enqueues the evaluation of a micro-batch, summed over all ranks.
  void enqueue(Transformer& model, const StepContext& step, const Batch& batch);
  LossSum read();  // the oldest unread micro-batch; waits for the device

  static int most_enqueued(Device device) { return device.kind == Device::Kind::cuda ? 2 : 1; }

 private:
  struct Slot {
    Mirror loss, tokens;
    Event done;
  };
  std::array<Slot, 2> slots_;  // used alternately
  std::size_t enqueued_ = 0, read_ = 0;
};

// Sums over all samples of a loader, which must not repeat them. Calls `stop` before each
// micro-batch; it must return the same on all ranks. Returns nothing after `stop` returned true.
//   enqueue: LossReader::enqueue; returns an event after which the batch has been read
//   read: LossReader::read
std::optional<LossSum> evaluate_all(Loader& loader, Device device,
                                    FunctionRef<Event(const Batch& batch)> enqueue,
                                    FunctionRef<LossSum()> read, FunctionRef<bool()> stop);

}  // namespace lockstep
