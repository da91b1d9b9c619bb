#include "train/step/loss_sum.h"

#include <algorithm>
#include <limits>

#include "dist/topology/holders.h"
#include "kernels/elementwise.h"

namespace lockstep {

double LossSum::mean() const {
  return tokens > 0 ? loss / static_cast<double>(tokens) : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t most_windows(std::int64_t tokens, std::int64_t sequence_length) {
  return tokens > 0 ? std::max<std::int64_t>(tokens / sequence_length, 1) : 0;
}

void sum_over_ranks(Stream& stream, Comms& comms, Tensor loss, Tensor tokens) {
  if (!counts_tokens(comms.mesh, comms.world->rank())) {
    fill(stream, loss, 0.0f);
    fill(stream, tokens, 0.0f);
  }
  comms.all->together([&] {
    comms.all->all_reduce(loss, ReduceOp::sum, stream);
    comms.all->all_reduce(tokens, ReduceOp::sum, stream);
  });
}

LossReader::LossReader(Tensor loss, Tensor tokens, Arena& pinned) {
  for (Slot& slot : slots_) {
    slot.loss = Mirror("evaluated_loss", loss, pinned);
    slot.tokens = Mirror("evaluated_tokens", tokens, pinned);
  }
}

void LossReader::enqueue(Transformer& model, const StepContext& step, const Batch& batch) {
  const int most = most_enqueued(step.compute.device());
  LOCKSTEP_CHECK(enqueued_ - read_ < static_cast<std::size_t>(most), most,
                 " micro-batches are enqueued already; read one");
  Slot& slot = slots_[enqueued_++ % 2];
  const Tensor loss = slot.loss.device(), tokens = slot.tokens.device();
  fill(step.compute, loss, 0.0f);
  fill(step.compute, tokens, 0.0f);
  const auto n = batch.inputs.elements();
  model.evaluate(step, batch.inputs.view({n}),
                 {.ids = batch.targets.view({n}), .loss_sum = loss, .valid_tokens = tokens});
  sum_over_ranks(step.compute, step.comms, loss, tokens);
  slot.loss.fetch(step.compute);
  slot.tokens.fetch(step.compute);
  slot.done = step.compute.record();
}

LossSum LossReader::read() {
  LOCKSTEP_CHECK(read_ < enqueued_, "no micro-batch is enqueued");
  const Slot& slot = slots_[read_++ % 2];
  slot.done.synchronize();
  return {*slot.loss.host().as<float>(), *slot.tokens.host().as<std::int32_t>()};
}

std::optional<LossSum> evaluate_all(Loader& loader, Device device,
                                    FunctionRef<Event(const Batch& batch)> enqueue,
                                    FunctionRef<LossSum()> read, FunctionRef<bool()> stop) {
  LossSum sum;
  int enqueued = 0;
  const auto add = [&] {
    const LossSum part = read();
    sum.loss += part.loss;
    sum.tokens += part.tokens;
    --enqueued;
  };
  bool stopped = false;
  for (std::int64_t first = 0; first < loader.samples() && !(stopped = stop());) {
    if (enqueued == LossReader::most_enqueued(device)) add();
    const Batch batch = loader.batch(first, 0);
    first += loader.step_samples();
    loader.release(batch, enqueue(batch));
    ++enqueued;
  }
  while (enqueued > 0)
    add();
  return stopped ? std::nullopt : std::optional(sum);
}

}  // namespace lockstep
