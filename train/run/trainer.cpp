#include "train/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "core/utf8.h"
#include "train/interop/model_tokenizer.h"
#include "train/observe/step_line.h"
#include "train/run/run.h"
#include "train/run/saves.h"
#include "train/run/start.h"
#include "train/schedule.h"
#include "train/step/data_waits.h"
#include "train/step/loss_sum.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// What no component has of a step; NaN where it was not timed. A GPU is done a little before its
// host sees it, so that its components may sum to a little more than what the host measured.
double rest_of(const StepTime& traced, double seconds) {
  return std::max(seconds - (traced.total() - traced[Component::other]), 0.0);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int exit_code_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr ? ours->exit_code() : 1;
}

class Trainer {
 public:
  Trainer(const TrainOptions& options, const RunRanks& ranks) : run_(options, ranks) {
    if (options.make_observer) observer_ = options.make_observer(run_);
  }
  int run();

 private:
  // A step that the device was given.
  struct Enqueued {
    std::int64_t step = 0, tokens_seen = 0;
    double learning_rate = 0;
    bool hashed = false;  // its weights, see WeightHash
  };
  Enqueued enqueue_step(bool hash);
  bool hash_due(std::int64_t after) const {
    return run_.due(run_.config.train.weight_hash_every_steps, after) ||
           run_.due(run_.config.checkpoint.every_steps, after);
  }
  Batch next_batch(int micro_step);
  RecordedStep compute_step();  // and waits for it
  void open_logs();
  int take_steps();  // to the last one; the exit code
  void begin_timeline();
  void end_timeline();
  StepReport finish(const Enqueued& enqueued);  // waits for it
  bool must_finish(bool save_due) const;
  void report(StepReport report);
  void log_shards(const ShardCache::Counts& now);
  std::optional<double> evaluate(StepReport& report);
  void spent_evaluating(StepReport& report, double seconds);
  bool must_measure_peak(std::int64_t after) const;
  void measure_peak(StepReport& report);
  void sample(StepReport& report);
  void check_skipped(const StepReport& report);

  Run run_;
  Saves saves_{run_};
  std::unique_ptr<StepObserver> observer_;  // may be absent
  DataWaits data_waits_{run_.compute};
  bool measured_peak_again_ = false;
  // Of the step that was reported last.
  std::optional<double> validation_loss_;
  std::optional<std::uint64_t> weight_hash_;
  std::int64_t skipped_in_a_row_ = 0;
  ShardCache::Counts shards_;      // as the log said last
  double checkpoint_seconds_ = 0;  // since the last report
  Clock::time_point last_end_;     // of a step
  double between_seconds_ = 0;     // since then, in evaluation, samples and saves
  std::optional<Timeline> timeline_;
  std::int64_t timeline_first_ = 0, timeline_end_ = 0;  // its steps
};

int Trainer::run() {
  try {
    start(run_, [this] { return compute_step(); });
    if (run_.step() >= run_.steps()) {
      log_info("the run is at step ", run_.step(), " of ", run_.steps(),
               "; raise train.steps to go on");
      run_.log.stay_at(run_.step());
      run_.log.end(0, "done", 0);
      return 0;
    }
    if (run_.is_first()) open_logs();
    const int code = take_steps();
    if (run_.is_first() && observer_) observer_->end();
    run_.log.end(code, code == 0 ? "done" : "stopped by a signal", checkpoint_seconds_);
    return code;
  } catch (const std::exception& error) {
    run_.log.end(exit_code_of(error), error.what(), 0);
    throw;
  }
}

void Trainer::open_logs() {
  run_.directory.check();
  run_.directory.keep();
  write_text(run_.directory.config(), run_.options.resolved_config);
  keep_tokenizer(run_.tokenizer.what, run_.directory.tokenizer(), run_.config.train.init_from);
  if (observer_) observer_->open();
  run_.log.open(run_.config.log, {.began = run_.options.began,
                                  .step = run_.step(),
                                  .ranks = run_.world.size(),
                                  .hosts = run_.hosts(),
                                  .version = run_.options.version});
  Json data;  // of the steps that metrics.jsonl will have behind the checkpoint
  data.set("stretches", to_json(run_.loader.sources().history()));
  write_text(run_.directory.data(), data.dump(2) + "\n");
}

int Trainer::take_steps() {
  if (const auto stop = run_.agreed_stop()) {
    log_info("stopped by a signal before step ", run_.step() + 1);
    return stop;
  }
  begin_timeline();
  last_end_ = Clock::now();
  bool save_due = false;
  std::optional<Enqueued> before;  // a step that is not reported yet
  while (run_.step() < run_.steps()) {
    const Enqueued enqueued = enqueue_step(hash_due(run_.step() + 1));
    if (timeline_ && run_.step() == timeline_end_) end_timeline();
    if (before) report(finish(*before));
    before = enqueued;
    saves_.poll();
    if (!must_finish(save_due)) continue;
    const StepReport done = finish(enqueued);
    before.reset();
    report(done);
    // Alone, a rank need not wait for the next step to hear of a signal.
    if (run_.world.size() == 1) run_.stop = run_.signals.exit_code().value_or(run_.stop);
    // A checkpoint of a step that was skipped waits for a good one, unless there is no time.
    save_due = save_due || run_.due(run_.config.checkpoint.every_steps);
    if (run_.stop != 0 || run_.step() == run_.steps()) {
      checkpoint_seconds_ = saves_.end(validation_loss_, weight_hash_, /*must=*/run_.stop == 0);
    } else if (save_due && !done.skipped) {
      checkpoint_seconds_ = saves_.begin(validation_loss_, weight_hash_);
      between_seconds_ += checkpoint_seconds_;
      save_due = false;
    }
    if (run_.stop != 0) {
      log_info("stopped by a signal after step ", run_.step(),
               "; the same command goes on from there");
      return run_.stop;
    }
  }
  return 0;
}

void Trainer::begin_timeline() {
  if (run_.options.trace_steps == 0) return;
  timeline_first_ = run_.step() + 1;
  timeline_end_ = std::min(run_.steps(), run_.step() + run_.options.trace_steps);
  run_.training.set_timeline(&timeline_.emplace());
}

void Trainer::end_timeline() {
  run_.training.set_timeline(nullptr);
  run_.compute.synchronize();
  run_.log.attempt([&] {
    run_.directory.check();
    timeline_->write(run_.directory.trace(run_.world.rank()), run_.world.rank());
    log_info("steps ", timeline_first_, " to ", run_.step(), " are in ",
             run_.directory.trace(0).string(),
             run_.world.size() > 1 ? " and its like of other ranks" : "",
             "; Perfetto and chrome://tracing show it");
  });
  timeline_.reset();
}

Trainer::Enqueued Trainer::enqueue_step(bool hash) {
  Enqueued enqueued{.step = ++run_.progress.step, .hashed = hash};
  enqueued.learning_rate = learning_rate(run_.config.schedule, run_.config.optimizer.learning_rate,
                                         enqueued.step, run_.steps());
  run_.training.begin_step(enqueued.step, enqueued.learning_rate,
                           run_.signals.exit_code().value_or(0));
  for (int m = 0; m < run_.loader.micro_steps(); ++m) {
    const Batch batch = next_batch(m);
    run_.loader.release(batch, run_.training.micro_step(batch, m + 1 == run_.loader.micro_steps()));
  }
  if (saves_.is_under_way() && run_.shares_state) {  // what is saved is what the update changes
    const Trace::Span span(run_.compute, Component::checkpoint);
    saves_.await();
  }
  run_.training.finish_step();
  if (hash) run_.training.weight_hash().enqueue(run_.compute);
  run_.progress.first_sample += run_.training.config().global_batch_sequences;
  run_.progress.tokens_seen += run_.config.train.batch_tokens;
  enqueued.tokens_seen = run_.progress.tokens_seen;
  return enqueued;
}

Batch Trainer::next_batch(int micro_step) {
  const Trace::Span span(run_.compute, Component::data);
  const double waited = run_.loader.waited_seconds();
  data_waits_.begin();
  const Batch batch = run_.loader.batch(run_.progress.first_sample, micro_step);
  data_waits_.end(run_.loader.waited_seconds() - waited);
  return batch;
}

RecordedStep Trainer::compute_step() {
  const Enqueued enqueued = enqueue_step(true);
  const auto numbers = run_.training.numbers(enqueued.step);
  run_.stop = std::max(run_.stop, numbers.stop);
  run_.training.trace().take();
  data_waits_.take();
  return {.step = enqueued.step,
          .learning_rate = enqueued.learning_rate,
          .loss = numbers.loss,
          .grad_norm = numbers.grad_norm,
          .weight_hash = hex_of(run_.read_weight_hash(enqueued.step))};
}

// A GPU is given the next step before it has done this one, so that it never waits for the host:
// its numbers are read one step late. What needs them now: an evaluation, a sample, a save, the
// end.
bool Trainer::must_finish(bool save_due) const {
  return !run_.compute.is_cuda() || save_due || run_.due(run_.config.checkpoint.every_steps) ||
         (run_.validation && run_.due(run_.config.eval.every_steps)) ||
         (run_.config.log.sample_every_steps > 0 && run_.due(run_.config.log.sample_every_steps)) ||
         run_.stop != 0;
}

// A step's time is all since the end of the one before, but for what is reported beside it: what
// the host does between steps is part of it, and of the run's wall time nothing is left out.
StepReport Trainer::finish(const Enqueued& enqueued) {
  const auto numbers = run_.training.numbers(enqueued.step);
  run_.stop = std::max(run_.stop, numbers.stop);
  const auto end = Clock::now();
  const std::chrono::duration<double> since = end - std::exchange(last_end_, end);
  const double took = since.count() - std::exchange(between_seconds_, 0);

  StepTime traced = run_.training.trace().take();
  const double held = traced[Component::checkpoint];  // see hold_update
  const double waited = std::isnan(held) ? 0 : held;
  StepReport report = run_.meter.step(enqueued.step, took - waited);
  report.data_wait_seconds = std::min(data_waits_.take(), report.step_seconds);
  // A GPU's step is over for its host when the next one has its data: these are what it waited for.
  if (run_.compute.is_cuda() && !std::isnan(traced[Component::data]))
    traced[Component::data] = report.data_wait_seconds;
  report.time = traced;
  report.time[Component::other] = rest_of(traced, took);
  report.time[Component::checkpoint] = std::exchange(checkpoint_seconds_, 0) + waited;
  report.tokens_seen = enqueued.tokens_seen;
  report.loss = numbers.loss;
  report.grad_norm = numbers.grad_norm;
  report.valid_tokens = numbers.valid_tokens;
  report.skipped = !numbers.applied;
  report.learning_rate = enqueued.learning_rate;
  if (enqueued.hashed) report.weight_hash = run_.read_weight_hash(enqueued.step);
  return report;
}

// One line for people, one object for programs.
void Trainer::report(StepReport report) {
  run_.progress.statistics.observe(report);
  validation_loss_.reset();
  weight_hash_ = report.weight_hash;
  // The last step has no later one to evaluate it.
  const bool stopping = run_.stop != 0 && run_.step() != run_.steps();
  if (run_.validation && run_.due(run_.config.eval.every_steps, report.step) && !stopping)
    report.validation_loss = validation_loss_ = evaluate(report);
  if (must_measure_peak(report.step) && run_.stop == 0) measure_peak(report);
  report.shards = run_.files.counts();
  if (observer_) observer_->fill_in(report);
  if (run_.due(run_.config.log.every_steps, report.step) || report.validation_loss) {
    if (run_.gpu) report.gpu = run_.gpu->read(report.step);
    if (report.gpu)
      report.joules_per_token = report.gpu->step_joules * run_.world.size() /
                                static_cast<double>(run_.config.train.batch_tokens);
    if (run_.is_first()) print_step(report);
    if (run_.is_first() && report.shards) log_shards(*report.shards);
  }
  if (run_.config.log.sample_every_steps > 0 &&
      run_.due(run_.config.log.sample_every_steps, report.step) && !stopping)
    sample(report);
  if (observer_) observer_->observe(report);
  run_.log.append(report);
  check_skipped(report);
}

void Trainer::log_shards(const ShardCache::Counts& now) {
  const auto words = in_words(now, std::exchange(shards_, now));
  if (!words.empty()) log_info("shards: ", words);
}

void Trainer::check_skipped(const StepReport& report) {
  if (!report.skipped) {
    skipped_in_a_row_ = 0;
    run_.applied_step = report.step;
    run_.judge_checkpoint();
    return;
  }
  const bool has_targets = report.valid_tokens > 0;
  if (has_targets)
    log_warning("step ", report.step, ": loss ", report.loss, ", gradient norm ", report.grad_norm,
                "; the update is skipped, nothing changed");
  else
    log_warning("no token of step ", report.step,
                " counts in the loss: masks leave out all of its targets, or its rows end before "
                "what counts begins; the update is skipped, nothing changed");
  if (++skipped_in_a_row_ < run_.config.train.most_skipped) return;
  saves_.give_up();  // the error speaks of them
  throw Error(str(skipped_in_a_row_, " updates in a row were skipped, the last one at step ",
                  report.step, "; ", saves_.last_good(),
                  has_targets
                      ? ". Lower optimizer.learning_rate, or look at the data around this step"
                      : ", of which no token counts in the loss. Raise train.sequence_length or "
                        "train.batch_tokens, or look at the masks with `lockstep data inspect`"));
}

// At the first evaluation or save, when steps stop anyway. The peak of a GPU is known.
bool Trainer::must_measure_peak(std::int64_t after) const {
  const bool stops = (run_.validation && run_.due(run_.config.eval.every_steps, after)) ||
                     run_.due(run_.config.checkpoint.every_steps, after);
  return !measured_peak_again_ && !run_.compute.is_cuda() && stops && after < run_.steps();
}

void Trainer::measure_peak(StepReport& report) {
  const auto begin = Clock::now();
  const double before = run_.meter.config().peak_flops;
  measured_peak_again_ = true;
  run_.meter.measured_peak(measured_peak_flops(run_.config, run_.compute, run_.world));
  if (observer_) observer_->meter_changed();
  const double peak = run_.meter.config().peak_flops;
  if (peak > kMostUtilization * before)
    log_info("MFU is over a peak of ", human_count(peak), " FLOP/s from now on, not ",
             human_count(before), ", which was measured while the machine was busy");
  spent_evaluating(report, seconds_since(begin));
}

void Trainer::sample(StepReport& report) {
  const auto begin = Clock::now();
  const auto room = std::min(run_.config.log.sample_tokens,
                             run_.config.model.max_positions - std::ssize(run_.prompt));
  std::string text = run_.config.log.sample_prompt;
  try {
    const auto tokens = run_.training.sample(run_.prompt, room,
                                             {.temperature = 0.8f, .seed = run_.config.train.seed});
    if (run_.tokenizer.tokenizer)
      text += run_.tokenizer.tokenizer->decode(tokens);
    else
      for (const auto token : tokens)
        text += str(" ", token);
    log_info("sample after step ", run_.step(), ": ", replaced_utf8(text));
  } catch (const DataError& error) {  // of weights that went wrong; the next step will say so
    log_warning("no sample after step ", run_.step(), ": ", error.what());
  }
  spent_evaluating(report, seconds_since(begin));
}

void Trainer::spent_evaluating(StepReport& report, double seconds) {
  report.evaluation_seconds += seconds;
  between_seconds_ += seconds;
}

// Nothing when a signal came meanwhile: who asks the run to stop does not wait for an evaluation.
std::optional<double> Trainer::evaluate(StepReport& report) {
  constexpr int kAskEvery = 8;  // micro-batches, where other ranks answer too
  const auto begin = Clock::now();
  const auto sum = evaluate_all(
      *run_.validation, run_.compute.device(),
      [&](const Batch& batch) { return run_.training.evaluate(batch); },
      [&] { return run_.training.evaluated(); },
      [&, batches = 0]() mutable {
        if (run_.step() == run_.steps()) return false;  // the last one is worth the wait
        if (run_.world.size() == 1 || ++batches % kAskEvery == 0) run_.stop = run_.agreed_stop();
        return run_.stop != 0;
      });
  const double seconds = seconds_since(begin);
  spent_evaluating(report, seconds);
  run_.meter.spent_evaluating(seconds, run_.config.eval.every_steps);
  if (!sum) return std::nullopt;
  return sum->mean();
}

}  // namespace

int train(const TrainOptions& options, const RunRanks& ranks) {
  Trainer trainer(options, ranks);
  return ranks.world.ends_all([&] { return trainer.run(); });
}

}  // namespace lockstep
