#include "train/run/step_runner.h"

#include <algorithm>

#include "dist/job/agent_socket.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Due due_after(const RunConfig& config, std::int64_t step) {
  Due due{.last = step == config.train.steps};
  // An interval of 0 means only at the end.
  const auto is_due = [&](std::int64_t every_steps) {
    return due.last || (every_steps > 0 && step % every_steps == 0);
  };
  due.line = is_due(config.log.every_steps);
  due.evaluation = !config.data.validation.empty() && is_due(config.eval.every_steps);
  due.sample = config.log.sample_every_steps > 0 && is_due(config.log.sample_every_steps);
  due.checkpoint = is_due(config.checkpoint.every_steps);
  due.comparison = config.plan.compare_every_steps > 0 && is_due(config.plan.compare_every_steps);
  due.hash = due.checkpoint || is_due(config.train.weight_hash_every_steps);
  return due;
}

int StepRunner::signal() const {
  const bool is_save_due = run_.host.is_first() && Clock::now() >= run_.position.next_save;
  return run_.position.signal(run_.host.signals, is_save_due);
}

StepRunner::Enqueued StepRunner::enqueue(FunctionRef<void()> before_update, bool must_hash) {
  auto& training = run_.compute.training;
  auto& loader = run_.data.loader;
  auto& progress = run_.position.progress;
  const auto& config = run_.config;

  Enqueued enqueued{.step = ++progress.step, .due = due_after(config, progress.step)};
  if (enqueued.step == run_.end_step() && !enqueued.due.last)
    enqueued.due.phase_end = enqueued.due.checkpoint = enqueued.due.hash = true;
  enqueued.due.hash = enqueued.due.hash || must_hash;
  enqueued.learning_rate = learning_rate_at(config, progress.amendments, enqueued.step);
  training.begin_step(enqueued.step, enqueued.learning_rate, signal());
  for (int m = 0; m < loader.micro_steps(); ++m) {
    note_samples(m);
    const Batch batch = next_batch(m);
    loader.release(batch, training.micro_step(batch, m + 1 == loader.micro_steps()));
  }
  note_samples(loader.micro_steps());
  before_update();
  training.finish_step();
  if (enqueued.due.hash) training.weight_hash().enqueue(run_.host.stream);

  progress.first_sample += training.config().global_batch_sequences;
  progress.tokens_seen += config.train.batch_tokens;
  enqueued.tokens_seen = progress.tokens_seen;
  return enqueued;
}

Batch StepRunner::next_batch(int micro_step) {
  const Trace::Span span(run_.host.stream, Component::data);
  auto& loader = run_.data.loader;
  const double waited = loader.waited_seconds();
  data_stalls_.begin();
  const Batch batch = loader.batch(run_.position.progress.first_sample, micro_step);
  data_stalls_.end(loader.waited_seconds() - waited);
  return batch;
}

// An error ended this step before. If it comes back, its report shall say which samples the rank
// computed, so the device computes nothing else meanwhile.
void StepRunner::note_samples(int micro_step) {
  const auto& place = place_from_agent();
  const auto step = run_.step();
  if (!place || place->noted_step == 0 || step < place->noted_step || step > place->noted_step + 1)
    return;
  run_.host.stream.synchronize();
  RankReport report{.step = step};
  const auto& loader = run_.data.loader;
  const auto first_of_step = run_.position.progress.first_sample;
  const auto first = loader.first_sample_of(first_of_step, micro_step);
  // Sequences after the step's last sample are masked.
  const auto end =
      std::min(first + run_.config.train.micro_batch, first_of_step + loader.step_samples());
  if (micro_step < loader.micro_steps() && first < end)
    report.samples = str("samples ", first, " to ", end - 1, " of step ", step);
  report_to_agent(report);
}

RecordedStep StepRunner::compute() {
  const Enqueued enqueued = enqueue([] {}, /*must_hash=*/true);
  const Result result = read(enqueued);
  return {.step = enqueued.step,
          .learning_rate = enqueued.learning_rate,
          .loss = result.numbers.loss,
          .grad_norm = result.numbers.grad_norm,
          .weight_hash = hex_of(*result.weight_hash)};
}

StepRunner::Result StepRunner::read(const Enqueued& enqueued) {
  Result result;
  result.numbers = run_.compute.training.numbers(enqueued.step);
  result.done = std::chrono::steady_clock::now();
  run_.position.agreed(result.numbers.signal);
  result.traced = run_.compute.training.trace().take();
  result.data_wait_seconds = data_stalls_.take();
  if (enqueued.due.hash) result.weight_hash = run_.read_weight_hash(enqueued.step);
  return result;
}

}  // namespace lockstep
