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
#include "train/run/checkpoint_loop.h"
#include "train/run/live_requests.h"
#include "train/run/memory_budget.h"
#include "train/run/peak_flops.h"
#include "train/run/restore.h"
#include "train/run/run_checks.h"
#include "train/run/run_context.h"
#include "train/run/step_runner.h"
#include "train/step/loss_sum.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

int exit_code_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr ? ours->exit_code() : 1;
}

// Trainer runs the loop: it enqueues steps, reports each, and evaluates, samples and saves between
// them.
class Trainer {
 public:
  Trainer(Run& run, StepRunner& runner) : run_(run), runner_(runner) {
    if (const auto& make = run.host.options.make_observer) observer_ = make(run);
  }
  ~Trainer() { run_.compute.training.set_timeline(nullptr); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  // Trains to the last step or a signal, and returns the exit code. `starting`: for the ledger.
  int run(const StartSeconds& starting);

 private:
  void open_logs(const StartSeconds& starting);
  int take_steps();
  void begin_timeline();
  void end_timeline();
  bool must_finish(const Due& due, bool save_due) const;
  void begin_save(bool copies);
  void pause();
  const char* why_it_ends() const;
  StepReport finish(const StepRunner::Enqueued& enqueued);
  StepReport make_report(const StepRunner::Enqueued& enqueued);
  void show(StepReport& report, const Due& due);
  void log_shards(const ShardCache::Counts& now);
  std::optional<double> evaluate(StepReport& report);
  void spent_evaluating(StepReport& report, double seconds);
  // A stop skips evaluation and sample, except those of the last step: no later step makes them.
  bool is_stopping() const { return run_.position.stop != 0 && run_.step() != run_.steps(); }
  bool is_beginning_again() const {
    return phase_ends_ || requests_.next() != LiveRequests::Next::step;
  }
  void measure_peak(StepReport& report);
  void sample(StepReport& report);
  void check_skipped(const StepReport& report);

  Run& run_;
  StepRunner& runner_;
  CheckpointLoop saves_{run_};
  LiveRequests requests_{run_};
  std::unique_ptr<StepObserver> observer_;  // may be absent
  bool measured_peak_again_ = false, told_costs_ = false;
  bool phase_ends_ = false;  // the run begins again because another phase begins
  // Results of the last reported step, which its checkpoint stores.
  std::optional<double> validation_loss_;
  std::optional<std::uint64_t> weight_hash_;
  std::int64_t skipped_in_a_row_ = 0;
  ShardCache::Counts shards_;      // the last counts in the log
  double checkpoint_seconds_ = 0;  // waiting for saves, not reported yet
  Clock::time_point last_end_;     // end of the last reported step, as the host saw it
  double between_seconds_ = 0;     // evaluation, samples and saves since last_end_
  std::optional<Timeline> timeline_;
  std::int64_t timeline_first_ = 0, timeline_end_ = 0;  // its first and last step
};

}  // namespace

namespace {

// Opens and checks the data of later phases, so that a mistake is found before the first step.
void check_later_data(const TrainOptions& options, const RunConfig& now, const Sources& training,
                      World& world) {
  auto history = training.history();
  const Config::Data* before = &now.data;
  for (const auto& phase : options.later_phases) {
    const auto& data = phase.config.data;
    const bool is_same =
        data.sources() == before->sources() && data.validation == before->validation;
    before = &data;
    if (is_same) continue;
    RunShards files(data, world);
    const RunSources sources(with_rows(phase.config, now.data.rows), files);
    check_data(phase.config, sources.training,
               sources.held_out ? &sources.held_out->dataset(0) : nullptr, world);
    history = continued(
        history, history.back().first_sample + 1, sources.training.history().back(),
        [](const Stretch::Source& source, std::int64_t) { return source.counter; },
        options.allow_dataset_change);
    files.stop();
  }
}

}  // namespace

namespace {

// A live request that the run cannot begin again with is dropped, so that the next start resumes
// without it. Throws TransientError then.
void check_unfinished(const RunHost& host, const std::exception& error) {
  const auto code = exit_code_of(error);
  const bool is_lasting = code == ConfigError("").exit_code() || code == DataError("").exit_code();
  if (host.options.unfinished.empty() || !is_lasting) return;
  if (host.is_first()) drop_unfinished_request(host.directory, error.what());
  throw TransientError(str(host.options.unfinished, " is dropped: ", error.what(),
                           "; rerun the same command to resume without it"));
}

int train(RunHost& host, const TrainOptions& options, bool& is_restored);

}  // namespace

int train(const TrainOptions& options, const RunRanks& ranks) {
  // Rank 0 makes the directory, and the others find it.
  RunHost host(options, ranks);
  bool is_restored = false;
  try {
    return train(host, options, is_restored);
  } catch (const Error& error) {
    if (!is_restored) check_unfinished(host, error);
    throw;
  }
}

namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Makes the parts of the run and trains. All ranks execute each statement at the same time, because
// most contain a collective. If one throws here, the caller's ends_all ends all ranks
// (launch/train_verb.cpp).
int train(RunHost& host, const TrainOptions& options, bool& is_restored) {
  StartSeconds starting{.meet = seconds_since(options.began)};
  // The first rank of each host opens the data files for the ranks of that host.
  RunShards files(options.config.data, host.world);
  RunSources sources(options.config, files);
  // On GPUs, ranks compare GPU models, drivers and libraries.
  const RunConfig config =
      settle(options.config, sources.training.row_kind(), host.stream, host.world);
  // Each rank has enough memory, or throws. All ranks stage checkpoints in a copy, or none does.
  const RunBytes bytes = announced_bytes(config, options.later_phases, host.stream, host.world,
                                         host.topology, host.gpu ? host.gpu->others() : "");
  // Ranks compare the data.
  check_data(config, sources.training, sources.held_out ? &sources.held_out->dataset(0) : nullptr,
             host.world);
  check_later_data(options, config, sources.training, host.world);
  // Rank 0 fetches the tokenizer of remote data.
  RunData data(config, std::move(sources), bytes, host, files);
  // Ranks allocate memory that NCCL sends from, make their process groups, and exchange the peak
  // FLOP/s of their devices and whether saves read the training state itself.
  RunCompute compute(config, bytes, host);
  RunPosition position;
  // Ranks find out which of them share a host.
  RunCheckpoints checkpoints(config.checkpoint, host.directory.owned_checkpoints(),
                             compute.state.slices(), host.world, host.topology);

  Run run{host, config, data, compute, position, checkpoints};
  StepRunner runner(run);
  Trainer trainer(run, runner);
  return host.world.ends_all([&] {
    try {
      const auto loading = Clock::now();
      restore(run, runner);  // loads the newest checkpoint, the same on all ranks
      is_restored = true;
      starting.load = seconds_since(loading);
      return trainer.run(starting);
    } catch (const std::exception& error) {
      host.log.end(exit_code_of(error), error.what(), 0);
      if (!is_restored) check_unfinished(host, error);
      throw;
    }
  });
}

// The part of a step that no component accounts for. It is NaN if the components were not timed. A
// host sees the end of a GPU's step a little late, so the components may sum to more than
// `seconds`.
double rest_of(const StepTime& traced, double seconds) {
  return std::max(seconds - (traced.total() - traced[Component::other]), 0.0);
}

// Whether a step has a line in the log.
bool has_line(const StepReport& report, const Due& due) {
  return due.line || report.validation_loss;
}

int Trainer::run(const StartSeconds& starting) {
  RunLog& log = run_.host.log;
  if (run_.step() >= run_.steps()) {
    log_info("the run is at step ", run_.step(), " of ", run_.steps(),
             "; to continue, raise train.steps and pass --extend");
    saves_.finish_resumed();
    log.stay_at(run_.step());
    log.end(0, "done", 0);
    return 0;
  }
  if (run_.host.is_first()) open_logs(starting);
  const int code = take_steps();
  if (run_.host.is_first() && observer_) observer_->end();
  const bool begins_again = is_beginning_again();
  requests_.close(begins_again);
  log.end(code, code == 0 ? "done" : why_it_ends(), checkpoint_seconds_);
  return begins_again ? kTrainAgain : code;
}

const char* Trainer::why_it_ends() const {
  if (phase_ends_) return "the next phase begins";
  if (is_beginning_again()) return "a request changes the run";
  const bool is_request = !run_.host.signals.exit_code() && run_.position.taken > 0 &&
                          run_.position.stop == kStoppedByUser;
  return is_request ? "stopped by a request" : "stopped by a signal";
}

void Trainer::open_logs(const StartSeconds& starting) {
  run_.host.directory.check();
  run_.host.directory.keep();
  write_text(run_.host.directory.config(), run_.host.options.resolved_config);
  keep_tokenizer(run_.data.tokenizer.what, run_.host.directory.tokenizer(),
                 run_.config.train.init_from);
  if (observer_) observer_->open();
  const auto& place = place_from_agent();
  run_.host.log.open(
      run_.config.log,
      {.began = run_.host.options.began,
       .step = run_.step(),
       .ranks = run_.host.world.size(),
       .hosts = run_.host.hosts(),
       .version = run_.host.options.version,
       .restart = place && !run_.host.options.continues ? place->restart : RestartSeconds(),
       .starting = starting});
  Json data;  // which samples the steps after this checkpoint read
  data.set("stretches", to_json(run_.data.loader.sources().history()));
  write_text(run_.host.directory.data(), data.dump(2) + "\n");
  requests_.open();
}

int Trainer::take_steps() {
  int& stop = run_.position.stop;
  if (const auto asked = run_.host.agreed_stop()) {
    log_info("stopped by a signal before step ", run_.step() + 1);
    return asked;
  }
  begin_timeline();
  last_end_ = Clock::now();
  saves_.start_clock();
  bool save_due = false, copy_due = false;
  std::optional<StepRunner::Enqueued> before;  // the enqueued step whose numbers are not read yet
  while (run_.step() < run_.end_step()) {
    const auto enqueued = runner_.enqueue([&] { saves_.await_before_update(); });
    if (before) finish(*before);
    if (timeline_ && run_.step() == timeline_end_) end_timeline();
    before = enqueued;
    saves_.poll();
    requests_.note_saves(saves_.ended_step());
    if (!must_finish(enqueued.due, save_due)) continue;
    before.reset();
    const StepReport done = finish(enqueued);
    // Several ranks agree on a stop on the device, and read() returns it. A single rank asks here.
    if (run_.host.world.size() == 1) stop = run_.host.signals.exit_code().value_or(stop);
    if (stop == 0) requests_.take();
    phase_ends_ = enqueued.due.phase_end && stop == 0;
    // After a skipped step a checkpoint waits for the next good step, unless the run ends.
    copy_due = copy_due || enqueued.due.checkpoint || requests_.wants_save();
    save_due = copy_due || std::exchange(run_.position.save_agreed, false) || save_due;
    const auto ends = [&] { return stop != 0 || is_beginning_again() || enqueued.due.last; };
    if (!ends() && save_due && !done.skipped) {
      begin_save(copy_due);
      save_due = copy_due = false;
    }
    if (!ends() && requests_.is_paused()) pause();
    if (is_beginning_again() && stop == 0) stop = TransientError("").exit_code();
    if (requests_.next() == LiveRequests::Next::rollback) {
      saves_.give_up();
    } else if (ends()) {
      requests_.save_begins();
      checkpoint_seconds_ =
          saves_.end(validation_loss_, weight_hash_, /*copies_must_arrive=*/!is_stopping());
      requests_.note_saves(saves_.ended_step());
    }
    if (is_stopping() || is_beginning_again()) {
      if (timeline_) end_timeline();
      log_info(why_it_ends(), " after step ", run_.step(),
               is_beginning_again() ? "" : "; rerun the same command to resume");
      return stop;
    }
  }
  return 0;
}

void Trainer::begin_save(bool copies) {
  requests_.save_begins();
  checkpoint_seconds_ += saves_.begin(validation_loss_, weight_hash_, copies);
  between_seconds_ += checkpoint_seconds_;
}

// Waits after a step until a request or a signal ends the pause.
void Trainer::pause() {
  log_info("paused after step ", run_.step());
  const auto begin = Clock::now();
  const double saving = checkpoint_seconds_;
  while (requests_.is_paused() && run_.position.stop == 0 && !is_beginning_again()) {
    requests_.wait_paused();
    saves_.poll();
    requests_.note_saves(saves_.ended_step());
    if (requests_.wants_save()) begin_save(/*copies=*/true);
  }
  between_seconds_ += seconds_since(begin) - (checkpoint_seconds_ - saving);
}

void Trainer::begin_timeline() {
  if (run_.host.options.trace_steps == 0) return;
  timeline_first_ = run_.step() + 1;
  timeline_end_ = std::min(run_.steps(), run_.step() + run_.host.options.trace_steps);
  run_.compute.training.set_timeline(&timeline_.emplace());
}

void Trainer::end_timeline() {
  run_.compute.training.set_timeline(nullptr);
  run_.host.stream.synchronize();
  run_.host.log.attempt([&] {
    run_.host.directory.check();
    timeline_->write(run_.host.directory.trace(run_.host.world.rank()), run_.host.world.rank());
    log_info("wrote the trace of steps ", timeline_first_, " to ", run_.step(), " to ",
             run_.host.directory.trace(0).string(),
             run_.host.world.size() > 1 ? " and a file for each other rank" : "",
             "; open it in Perfetto or chrome://tracing");
  });
  timeline_.reset();
}

// Whether the numbers of the enqueued step are needed now. On a GPU they are otherwise read after
// the next step is enqueued (StepRunner). A CPU has finished the step already.
bool Trainer::must_finish(const Due& due, bool save_due) const {
  return !run_.host.stream.is_cuda() || save_due || due.needs_numbers() ||
         run_.position.save_agreed || run_.position.stop != 0 ||
         run_.position.request > run_.position.taken;
}

StepReport Trainer::finish(const StepRunner::Enqueued& enqueued) {
  StepReport report = make_report(enqueued);
  show(report, enqueued.due);
  check_skipped(report);
  if (!std::exchange(told_costs_, true))
    if (const auto costs = run_.host.world.costs_in_words(); !costs.empty()) log_info(costs);
  return report;
}

// The step time is the time from the end of the previous step to the end of this one, as the host
// saw both, minus evaluation, samples and saves, which are reported separately. The sum of all is
// the wall time.
StepReport Trainer::make_report(const StepRunner::Enqueued& enqueued) {
  const auto result = runner_.read(enqueued);  // throws if replicas differ
  const std::chrono::duration<double> since = result.done - std::exchange(last_end_, result.done);
  const double took = since.count() - std::exchange(between_seconds_, 0);
  const double held = known(result.traced[Component::checkpoint]);  // Training::hold_update

  StepReport report = run_.compute.meter.step(enqueued.step, took - held);
  report.data_wait_seconds = std::min(result.data_wait_seconds, report.step_seconds);
  report.time = result.traced;
  // The traced component is the host's view. For a GPU, use the time that it was idle for data.
  if (run_.host.stream.is_cuda() && !std::isnan(result.traced[Component::data]))
    report.time[Component::data] = report.data_wait_seconds;
  report.time[Component::other] = rest_of(report.time, took);
  report.time[Component::checkpoint] = std::exchange(checkpoint_seconds_, 0) + held;
  report.tokens_seen = enqueued.tokens_seen;
  report.loss = result.numbers.loss;
  report.grad_norm = result.numbers.grad_norm;
  report.valid_tokens = result.numbers.valid_tokens;
  report.skipped = !result.numbers.applied;
  report.learning_rate = enqueued.learning_rate;
  report.weight_hash = weight_hash_ = result.weight_hash;
  run_.position.progress.statistics.observe(report);

  const Due& due = enqueued.due;
  validation_loss_.reset();
  if (due.evaluation && !is_stopping())
    report.validation_loss = validation_loss_ = evaluate(report);
  // A CPU's peak is measured while the loop pauses anyway. A GPU's is in a table.
  const bool may_measure = !run_.host.stream.is_cuda() && run_.position.stop == 0 && !due.last;
  if (may_measure && !measured_peak_again_ && (due.evaluation || due.checkpoint))
    measure_peak(report);
  report.shards = run_.data.files.counts();
  if (observer_) observer_->fill_in(report);
  if (has_line(report, due) && run_.host.gpu) report.gpu = run_.host.gpu->read(report.step);
  if (report.gpu)  // assumes that all GPUs draw the power of this one
    report.joules_per_token = report.gpu->step_joules * run_.host.world.size() /
                              static_cast<double>(run_.config.train.batch_tokens);
  return report;
}

// Prints the step line, and appends the report to metrics.jsonl and the event file.
void Trainer::show(StepReport& report, const Due& due) {
  if (run_.host.is_first() && has_line(report, due)) {
    print_step(report);
    if (report.shards) log_shards(*report.shards);
  }
  if (due.sample && !is_stopping()) sample(report);
  if (observer_) observer_->observe(report, due.comparison);
  run_.host.log.append(report);
}

void Trainer::log_shards(const ShardCache::Counts& now) {
  const auto words = in_words(now, std::exchange(shards_, now));
  if (!words.empty()) log_info("shards: ", words);
}

void Trainer::check_skipped(const StepReport& report) {
  if (!report.skipped) {
    skipped_in_a_row_ = 0;
    run_.position.applied_step = report.step;
    run_.position.judge_checkpoint();  // a finite loss: the weights saved before this step are good
    return;
  }
  const bool has_targets = report.valid_tokens > 0;
  if (has_targets)
    log_warning("step ", report.step, ": loss ", report.loss, ", gradient norm ", report.grad_norm,
                "; the update is skipped and the weights are unchanged");
  else
    log_warning("no token of step ", report.step,
                " counts in the loss: all of its targets are masked, or its rows end before the "
                "first target that counts; the update is skipped and the weights are unchanged");
  if (++skipped_in_a_row_ < run_.config.train.most_skipped) return;
  saves_.give_up();  // waits for saves under way; the error names the last good one
  // A GPU computes the next step already. All ranks are about to throw this.
  report_to_agent({.step = report.step, .is_common = true});
  throw Error(str(
      skipped_in_a_row_, " updates in a row were skipped, the last one at step ", report.step, "; ",
      saves_.last_good(),
      has_targets ? ". Lower optimizer.learning_rate, or inspect the data around this step"
                  : ". No token of this step counts in the loss. Raise train.sequence_length "
                    "or train.batch_tokens, or inspect the masks with `lockstep data inspect`"));
}

void Trainer::measure_peak(StepReport& report) {
  const auto begin = Clock::now();
  const double before = run_.compute.meter.config().peak_flops;
  measured_peak_again_ = true;
  run_.compute.meter.measured_peak(
      measured_peak_flops(run_.config, run_.host.stream, run_.host.world));
  if (observer_) observer_->meter_changed();
  const double peak = run_.compute.meter.config().peak_flops;
  if (peak > kMostUtilization * before)
    log_info("MFU is now relative to a peak of ", human_count(peak), " FLOP/s instead of ",
             human_count(before), ", which was measured while the host was busy");
  spent_evaluating(report, seconds_since(begin));
}

void Trainer::sample(StepReport& report) {
  const auto begin = Clock::now();
  const auto room = std::min(run_.config.log.sample_tokens,
                             run_.config.model.max_positions - std::ssize(run_.data.prompt));
  std::string text = run_.config.log.sample_prompt;
  try {
    const auto tokens = run_.compute.training.sample(
        run_.data.prompt, room, {.temperature = 0.8f, .seed = run_.config.train.seed});
    if (run_.data.tokenizer.tokenizer)
      text += run_.data.tokenizer.tokenizer->decode(tokens);
    else
      for (const auto token : tokens)
        text += str(" ", token);
    log_info("sample after step ", run_.step(), ": ", replaced_utf8(text));
  } catch (const DataError& error) {  // weights are not finite; the next step is skipped
    log_warning("no sample after step ", run_.step(), ": ", error.what());
  }
  spent_evaluating(report, seconds_since(begin));
}

void Trainer::spent_evaluating(StepReport& report, double seconds) {
  report.evaluation_seconds += seconds;
  between_seconds_ += seconds;
}

// Returns no loss if a signal came meanwhile: a stop does not wait for an evaluation. With several
// ranks the question is a collective, so they ask after every 8th micro-batch only.
std::optional<double> Trainer::evaluate(StepReport& report) {
  constexpr int kAskEvery = 8;
  const auto begin = Clock::now();
  const auto sum = evaluate_all(
      *run_.data.validation, run_.host.stream.device(),
      [&](const Batch& batch) { return run_.compute.training.evaluate(batch); },
      [&] { return run_.compute.training.evaluated(); },
      [&, batches = 0]() mutable {
        if (run_.step() == run_.steps()) return false;  // the last evaluation is always complete
        if (run_.host.world.size() == 1 || ++batches % kAskEvery == 0)
          run_.position.stop = run_.host.agreed_stop();
        return run_.position.stop != 0;
      });
  const double seconds = seconds_since(begin);
  spent_evaluating(report, seconds);
  run_.compute.meter.spent_evaluating(seconds, run_.config.eval.every_steps);
  if (!sum) return std::nullopt;
  return sum->mean();
}

}  // namespace
}  // namespace lockstep
