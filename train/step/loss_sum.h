// LossSum: what evaluation adds up, in a type that loses nothing over any number of tokens.
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

// The windows of an evaluation of at most `tokens` tokens: whole ones, at least one; 0: all.
std::int64_t most_windows(std::int64_t tokens, std::int64_t sequence_length);

// Both, of this rank's tokens, become those of all ranks' (the same on tensor ranks, which count
// once).    loss [1] fp32, tokens [1] int32
void sum_over_ranks(Stream& stream, Comms& comms, Tensor loss, Tensor tokens);

// The losses of micro-batches on their way from the device. Of a GPU two may be on their way, so
// that it computes one while its host reads the one before.
class LossReader {
 public:
  LossReader() = default;
  // loss [1] fp32, tokens [1] int32: overwritten; host memory of a GPU comes from `pinned`
  LossReader(Tensor loss, Tensor tokens, Arena& pinned);

  // Of all ranks' batches.
  void enqueue(Transformer& model, const StepContext& step, const Batch& batch);
  LossSum read();  // of the first micro-batch that was not read; waits for the device to be done

  static int most_enqueued(Device device) { return device.kind == Device::Kind::cuda ? 2 : 1; }

 private:
  struct Slot {
    Mirror loss, tokens;
    Event done;
  };
  std::array<Slot, 2> slots_;  // by turns
  std::size_t enqueued_ = 0, read_ = 0;
};

// The sum over all samples of a loader that does not repeat them, each once. `stop` is asked before
// each micro-batch, and says the same on all ranks; nothing where it says so.
//   enqueue: LossReader::enqueue; once the event is done, the batch was read
//   read: LossReader::read
std::optional<LossSum> evaluate_all(Loader& loader, Device device,
                                    FunctionRef<Event(const Batch& batch)> enqueue,
                                    FunctionRef<LossSum()> read, FunctionRef<bool()> stop);

}  // namespace lockstep
