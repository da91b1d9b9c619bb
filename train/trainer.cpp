#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/function_ref.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/units.h"
#include "data/loader.h"
#include "data/unicode.h"
#include "dist/agreement.h"
#include "train/gpu_watch.h"
#include "train/host_state.h"
#include "train/layout.h"
#include "train/loss_sum.h"
#include "train/machine_files.h"
#include "train/meter.h"
#include "train/model_source.h"
#include "train/model_tokenizer.h"
#include "train/numerics.h"
#include "train/prepare.h"
#include "train/replay.h"
#include "train/resume.h"
#include "train/run_checkpoints.h"
#include "train/run_directory.h"
#include "train/run_log.h"
#include "train/run_parts.h"
#include "train/run_state.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/step_line.h"
#include "train/training.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double& seconds_of(StepReport& report, Phase phase) {
  return report.phase_seconds[static_cast<std::size_t>(phase)];
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool any_says(World& world, bool mine) {
  const auto said = world.exchange(mine ? "yes" : "no");
  return std::find(said.begin(), said.end(), "yes") != said.end();
}

class Trainer {
 public:
  Trainer(const TrainOptions& options, const RunRanks& ranks);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer() {
    files_.stop();
    training_.hold_update(std::nullopt);  // which is of a stream that goes first
  }
  int run();

 private:
  int agreed_stop();  // the largest exit code of a signal that a rank was sent; 0: none was
  void start();       // from the newest checkpoint, or from the beginning
  void initialize(const std::filesystem::path& weights);   // empty: random ones
  void choose_products(const std::optional<Json>& about);  // of the checkpoint it goes on from
  void take_loaded(const Json& about);
  void replay();
  // A step that the device was given.
  struct Enqueued {
    std::int64_t step = 0, tokens_seen = 0;
    double learning_rate = 0, data_wait_seconds = 0;
    Clock::time_point begin;
    bool hashed = false;  // its weights, see WeightHash
  };
  Enqueued enqueue_step(bool hash);
  bool hash_due(std::int64_t after) const {
    return due(config_.train.weight_hash_every_steps, after) ||
           due(config_.checkpoint.every_steps, after);
  }
  std::uint64_t read_weight_hash(std::int64_t step);
  void begin_timeline();
  void end_timeline();
  StepReport finish(const Enqueued& enqueued);  // waits for it
  bool must_finish(bool save_due) const;
  void report(StepReport report);
  void log_shards(const ShardCache::Counts& now);
  std::optional<double> evaluate(StepReport& report);
  void sample();
  void begin_save();
  void await_save();
  void finish_copies(bool must);
  // How one ended; throws where the run cannot go on, if it must not.
  void told(const BackgroundSave::Outcome& outcome);
  void check_skipped(const StepReport& report);
  std::string last_good_checkpoint() const;

  // Whether what happens every so many steps (0: only at the end) is due after a step.
  bool due(std::int64_t every_steps, std::int64_t after) const {
    return after == steps() || (every_steps > 0 && after % every_steps == 0);
  }
  bool due(std::int64_t every_steps) const { return due(every_steps, step()); }
  bool is_first() const { return world_.rank() == 0; }
  std::int64_t step() const { return progress_.step; }
  std::int64_t steps() const { return config_.train.steps; }
  std::int64_t end_sample() const {  // behind the last step
    return progress_.first_sample +
           std::max<std::int64_t>(steps() - step(), 0) * loader_.step_samples();
  }
  RunFacts facts() const {
    return {.config = config_,
            .settings = options_.settings,
            .history = loader_.sources().history(),
            .threads = compute_.threads(),
            .device = compute_.is_cuda() ? gpu::properties(compute_.device().index).name : "cpu",
            .attention = in_words(config_.train.attention),
            .numerics = numerics_ ? &*numerics_ : nullptr};
  }

  const TrainOptions& options_;
  World& world_;
  const Topology* topology_;  // may be absent
  const StopSignals signals_;
  RunDirectory run_;
  std::optional<GpuWatch> gpu_;  // before the streams, which take memory of the GPU
  Stream compute_;
  MachineFiles files_;
  Config config_;
  const Mesh mesh_;
  const DataPlace data_place_;
  const RunBytes bytes_;
  Arena pinned_;  // of the loaders
  Loader loader_;
  std::optional<Loader> validation_;
  const RunTokenizer tokenizer_;
  const std::vector<std::int32_t> sample_prompt_;
  Arenas arenas_;  // behind the data: they are large, and those may not be there
  Training training_;
  HostState state_;
  const bool shares_state_;  // of any rank
  Meter meter_;
  std::optional<NumericsRecord> numerics_;  // of a GPU
  RunLog log_;

  Progress progress_;
  int stop_ = 0;                  // with which all ranks agreed to stop; 0: they go on
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  // Of the step that was reported last.
  std::optional<double> validation_loss_;
  std::optional<std::uint64_t> weight_hash_;
  std::int64_t skipped_in_a_row_ = 0;
  ShardCache::Counts shards_;      // as the log said last
  double checkpoint_seconds_ = 0;  // since the last report
  Clock::time_point last_end_;     // of a step
  bool saving_ = false;            // began to save since all last waited for it
  bool ending_ = false;  // what is saved now is the end of the run: nothing will try again
  std::optional<Timeline> timeline_;                    // behind the streams that it has events of
  std::int64_t timeline_first_ = 0, timeline_end_ = 0;  // its steps
  RunCheckpoints checkpoints_;                          // behind all that its threads use
};

// The configuration, where this machine has room for what it reads at a time.
const Config& with_room(const Config& config, MachineFiles& files) {
  std::vector<Loader::Config> loaders{train_loader(config, files.files())};
  if (!config.data.validation.empty()) loaders.push_back(validation_loader(config, files.files()));
  files.need_room(loaders);
  return config;
}

Trainer::Trainer(const TrainOptions& options, const RunRanks& ranks)
    : options_(options),
      world_(ranks.world),
      topology_(ranks.topology),
      signals_(ranks.world.rank() == 0),
      run_(open_run(options.run, world_)),
      gpu_(options.device.kind == Device::Kind::cuda
               ? std::optional<GpuWatch>(std::in_place, options.device)
               : std::nullopt),
      compute_(options.device, "compute", Stream::Mode::immediate, threads_of(options.config)),
      files_(options.config.data, world_),
      config_(settled(with_room(options.config, files_), compute_, world_, files_.files())),
      mesh_(mesh_of(config_.layout, world_.size())),
      data_place_(data_place(mesh_, world_.rank())),
      bytes_(announced_bytes(config_, compute_, world_, gpu_ ? gpu_->others() : "")),
      pinned_(options.device, Arena::Memory::pinned_host, pinned_bytes(config_)),
      loader_(train_loader(config_, files_.files()), static_cast<int>(config_.train.micro_batch),
              data_place_.rank, data_place_.ranks, pinned_),
      validation_(held_out(with_rows(config_, loader_), loader_.sources(), world_, data_place_,
                           pinned_, files_.files())),
      tokenizer_(run_tokenizer(config_, loader_.sources(), run_, world_, files_.files())),
      sample_prompt_(sample_prompt(config_, tokenizer_)),
      arenas_(options.device, bytes_.training, world_.allocate(bytes_.training.device)),
      training_(training_config(config_), compute_, arenas_, make_comms(world_, mesh_, topology_)),
      state_(state_slices(training_.params(), training_.optimizer()), compute_, bytes_.copies),
      shares_state_(any_says(world_, state_.shares_state())),
      meter_(meter_config(config_, compute_, world_)),
      checkpoints_(config_.checkpoint, run_.checkpoints(), state_.slices(), world_, topology_) {
  config_.data = with_rows(config_, loader_).data;
}

int Trainer::run() {
  start();
  if (step() >= steps()) {
    log_info("the run is at step ", step(), " of ", steps(), "; raise train.steps to go on");
    return 0;
  }
  if (is_first()) {
    run_.keep();
    write_text(run_.config(), options_.resolved_config);
    if (!tokenizer_.what.empty()) keep_tokenizer(tokenizer_.what, run_.tokenizer());
    log_.open(run_, step(), config_.log.tensorboard);
  }
  if (const auto stop = agreed_stop()) {
    log_info("stopped by a signal before step ", step() + 1);
    return stop;
  }
  begin_timeline();
  bool save_due = false;
  std::optional<Enqueued> before;  // a step that is not reported yet
  while (step() < steps()) {
    const Enqueued enqueued = enqueue_step(hash_due(step() + 1));
    if (timeline_ && step() == timeline_end_) end_timeline();
    if (before) report(finish(*before));
    before = enqueued;
    if (const auto saved = checkpoints_.poll()) told(*saved);
    checkpoints_.log_copies();
    if (!must_finish(save_due)) continue;
    const StepReport done = finish(enqueued);
    before.reset();
    report(done);
    // Alone, a rank need not wait for the next step to hear of a signal.
    if (world_.size() == 1) stop_ = signals_.exit_code().value_or(stop_);
    // A checkpoint of a step that was skipped waits for a good one, unless there is no time.
    save_due = save_due || due(config_.checkpoint.every_steps);
    if (stop_ != 0 || step() == steps()) {
      await_save();
      ending_ = true;
      begin_save();
      await_save();
      finish_copies(/*must=*/stop_ == 0);
    } else if (save_due && !done.skipped) {
      begin_save();
      save_due = false;
    }
    if (stop_ != 0) {
      log_info("stopped by a signal after step ", step(), "; the same command goes on from there");
      return stop_;
    }
  }
  return 0;
}

int Trainer::agreed_stop() {
  int most = 0;
  for (const auto& said : world_.exchange(std::to_string(signals_.exit_code().value_or(0))))
    most = std::max(most, std::stoi(said));
  return most;
}

void Trainer::begin_timeline() {
  if (options_.trace_steps == 0) return;
  timeline_first_ = step() + 1;
  timeline_end_ = std::min(steps(), step() + options_.trace_steps);
  training_.set_timeline(&timeline_.emplace());
}

void Trainer::end_timeline() {
  training_.set_timeline(nullptr);
  compute_.synchronize();
  log_.attempt([&] {
    timeline_->write(run_.trace(world_.rank()), world_.rank());
    log_info("steps ", timeline_first_, " to ", step(), " are in ", run_.trace(0).string(),
             world_.size() > 1 ? " and its like of other ranks" : "",
             "; Perfetto and chrome://tracing show it");
  });
  timeline_.reset();
}

Trainer::Enqueued Trainer::enqueue_step(bool hash) {
  Enqueued enqueued{.step = ++progress_.step, .begin = Clock::now(), .hashed = hash};
  const double waited = loader_.waited_seconds();
  enqueued.learning_rate =
      learning_rate(config_.schedule, config_.optimizer.learning_rate, enqueued.step, steps());
  training_.begin_step(enqueued.step, enqueued.learning_rate, signals_.exit_code().value_or(0));
  for (int m = 0; m < loader_.micro_steps(); ++m) {
    const Batch batch = [&] {
      const Trace::Span span(training_.trace(), Phase::data, compute_);
      return loader_.batch(progress_.first_sample, m);
    }();
    loader_.release(batch, training_.micro_step(batch, m + 1 == loader_.micro_steps()));
  }
  if (saving_ && shares_state_) {  // what is saved is what the update changes
    const Trace::Span span(training_.trace(), Phase::checkpoint, compute_);
    await_save();
  }
  training_.finish_step();
  if (hash) training_.weight_hash().enqueue(compute_);
  progress_.first_sample += training_.config().global_batch_sequences;
  progress_.tokens_seen += config_.train.batch_tokens;
  enqueued.tokens_seen = progress_.tokens_seen;
  enqueued.data_wait_seconds = loader_.waited_seconds() - waited;
  return enqueued;
}

// A GPU is given the next step before it has done this one, so that it never waits for the host:
// its numbers are read one step late. What needs them now: an evaluation, a sample, a save, the
// end.
bool Trainer::must_finish(bool save_due) const {
  return !compute_.is_cuda() || save_due || due(config_.checkpoint.every_steps) ||
         (validation_ && due(config_.eval.every_steps)) ||
         (config_.log.sample_every_steps > 0 && due(config_.log.sample_every_steps)) || stop_ != 0;
}

StepReport Trainer::finish(const Enqueued& enqueued) {
  const auto numbers = training_.numbers(enqueued.step);
  stop_ = std::max(stop_, numbers.stop);
  const auto end = Clock::now();
  const std::chrono::duration<double> took = end - std::max(enqueued.begin, last_end_);
  last_end_ = end;

  const auto phases = training_.trace().take();
  const double held = phases[static_cast<std::size_t>(Phase::checkpoint)];  // see hold_update
  const double waited = std::isnan(held) ? 0 : held;
  StepReport report = meter_.step(enqueued.step, took.count() - waited);
  report.data_wait_seconds = enqueued.data_wait_seconds;
  report.phase_seconds = phases;
  seconds_of(report, Phase::evaluation) = 0;
  seconds_of(report, Phase::checkpoint) = std::exchange(checkpoint_seconds_, 0) + waited;
  report.tokens_seen = enqueued.tokens_seen;
  report.loss = numbers.loss;
  report.grad_norm = numbers.grad_norm;
  report.valid_tokens = numbers.valid_tokens;
  report.skipped = !numbers.applied;
  report.learning_rate = enqueued.learning_rate;
  if (enqueued.hashed) report.weight_hash = read_weight_hash(enqueued.step);
  return report;
}

// Ranks that hold the same weights and compute the same must have the same bits.
std::uint64_t Trainer::read_weight_hash(std::int64_t step) {
  const auto result = training_.weight_hash().read();
  if (result.unequal.empty()) return result.hash;
  std::string groups;
  for (const auto& ranks : result.unequal) {
    groups += str(groups.empty() ? "" : "; ", rank_list(ranks));
    if (topology_ != nullptr) groups += str(" on ", hosts_in_words(*topology_, ranks));
  }
  throw TransientError(str("behind step ", step,
                           ", weights that several ranks hold are not the same bits on all of "
                           "them. Alike are ",
                           groups,
                           ". Memory or a processor errs, likely where fewer are alike; the same "
                           "command goes on from ",
                           saved_step_ < 0 ? "the beginning" : str("step ", saved_step_),
                           ", whose weights were compared"));
}

// One line for people, one object for programs.
void Trainer::report(StepReport report) {
  progress_.statistics.observe(report);
  validation_loss_.reset();
  weight_hash_ = report.weight_hash;
  // The last step has no later one to evaluate it.
  const bool stopping = stop_ != 0 && step() != steps();
  if (validation_ && due(config_.eval.every_steps, report.step) && !stopping)
    report.validation_loss = validation_loss_ = evaluate(report);
  report.shards = files_.counts();
  if (due(config_.log.every_steps, report.step) || report.validation_loss) {
    if (gpu_) report.gpu = gpu_->read();
    if (is_first()) print_step(report);
    if (is_first() && report.shards) log_shards(*report.shards);
  }
  log_.append(report);
  check_skipped(report);
  if (config_.log.sample_every_steps > 0 && due(config_.log.sample_every_steps, report.step) &&
      !stopping)
    sample();
}

void Trainer::log_shards(const ShardCache::Counts& now) {
  const auto words = in_words(now, std::exchange(shards_, now));
  if (!words.empty()) log_info("shards: ", words);
}

// A step that was applied had a finite loss, so the weights before it, and the newest checkpoint
// with them, are good.
void Trainer::check_skipped(const StepReport& report) {
  if (!report.skipped) {
    skipped_in_a_row_ = 0;
    progress_.good_step = saved_step_;
    return;
  }
  log_warning("step ", report.step, ": loss ", report.loss, ", gradient norm ", report.grad_norm,
              "; the update is skipped, nothing changed");
  if (++skipped_in_a_row_ < config_.train.most_skipped) return;
  await_save();  // of which the error speaks
  finish_copies(/*must=*/false);
  throw Error(str(skipped_in_a_row_, " updates in a row were skipped, the last one at step ",
                  report.step, "; ", last_good_checkpoint(),
                  ". Lower optimizer.learning_rate, or look at the data around this step"));
}

std::string Trainer::last_good_checkpoint() const {
  if (saved_step_ < 0) return "there is no checkpoint yet";
  const auto newest = checkpoints_.find(saved_step_).string();
  const auto good =
      progress_.good_step < 0 ? std::filesystem::path() : checkpoints_.find(progress_.good_step);
  if (good.empty())
    return str("no step after a checkpoint was good; ", newest, " is not to be trusted");
  auto text = str("the last good checkpoint is step ", progress_.good_step, " in ", good.string());
  if (progress_.good_step == saved_step_) return text;
  return str(text, "; to go on from it, move ", newest, " away");
}

void Trainer::sample() {
  const auto room =
      std::min(config_.log.sample_tokens, config_.model.max_positions - std::ssize(sample_prompt_));
  std::string text = config_.log.sample_prompt;
  try {
    const auto tokens =
        training_.sample(sample_prompt_, room, {.temperature = 0.8f, .seed = config_.train.seed});
    if (tokenizer_.tokenizer)
      text += tokenizer_.tokenizer->decode(tokens);
    else
      for (const auto token : tokens)
        text += str(" ", token);
    log_info("sample after step ", step(), ": ", replaced_utf8(text));
  } catch (const DataError& error) {  // of weights that went wrong; the next step will say so
    log_warning("no sample after step ", step(), ": ", error.what());
  }
  training_.trace().take();
}

// Nothing when a signal came meanwhile: who asks the run to stop does not wait for an evaluation.
std::optional<double> Trainer::evaluate(StepReport& report) {
  constexpr int kAskEvery = 8;  // micro-batches, where other ranks answer too
  const auto begin = Clock::now();
  const auto sum = evaluate_all(
      *validation_, compute_.device(),
      [&](const Batch& batch) { return training_.evaluate(batch); },
      [&] { return training_.evaluated(); },
      [&, batches = 0]() mutable {
        if (step() == steps()) return false;  // the last one is worth the wait
        if (world_.size() == 1 || ++batches % kAskEvery == 0) stop_ = agreed_stop();
        return stop_ != 0;
      });
  training_.trace().take();
  const double seconds = seconds_of(report, Phase::evaluation) = seconds_since(begin);
  meter_.spent_between_steps(Phase::evaluation, seconds, config_.eval.every_steps);
  if (!sum) return std::nullopt;
  return sum->mean();
}

void Trainer::start() {
  log_step(config_, loader_, world_.size(), meter_.config());
  if (const auto imported = imported_weights(run_.checkpoints(), world_);
      imported && !checkpoints_.has_newer_elsewhere()) {
    choose_products(std::nullopt);
    log_sources(config_, loader_.sources(), end_sample());
    return initialize(*imported);
  }
  const auto accept = [&](const Json& about) {
    return check_resume(about, facts(), options_.allow_dataset_change);
  };
  state_.prepare_to_read();
  const auto about = checkpoints_.load_newest(
      [&](const Json& found) { accept(found); });  // on a GPU, to the host so far
  if (about) {
    progress_ = progress_in(*about);
    loader_.go_on(accept(*about));
  }
  log_sources(config_, loader_.sources(), end_sample());
  if (step() < steps() || options_.verify_steps > 0) choose_products(about);
  if (!about && options_.verify_steps > 0)
    throw ConfigError(str("--verify-resume: there is no checkpoint in ", run_.path().string()));
  if (!about) return initialize(config_.train.init_from);
  saved_step_ = step();
  take_loaded(*about);
  if (step() < steps())
    log_info("going on from step ", step(), " of ", steps(), " in ", run_.path().string());
  log_changes(*about, facts());
  if (options_.verify_steps > 0) replay();
}

// The state that was loaded is the run's.
void Trainer::take_loaded(const Json& about) {
  state_.send();
  training_.params().refresh_weights(compute_);
  const Json* saved = about.find("weight_hash");
  if (saved == nullptr) return;  // not in checkpoints of before
  training_.weight_hash().enqueue(compute_);
  const auto here = hex_of(read_weight_hash(about.at("step").as_integer()));
  if (here != saved->as_string())
    throw TransientError(str("the weights of step ", about.at("step").as_integer(),
                             " have the hash ", here, " in memory, but ", saved->as_string(),
                             " when they were saved, though all bytes of the checkpoint are as "
                             "written: memory or a processor errs, here or there. The same command "
                             "tries again; where it says so on another machine too, move step ",
                             about.at("step").as_integer(), " away, and an older one is taken"));
}

// Steps that the run recorded, from a checkpoint before them; then all is as it was.
void Trainer::replay() {
  const Progress now = progress_;
  const auto load = [&](std::int64_t step) {
    state_.prepare_to_read();
    const Json about = checkpoints_.load(step);
    take_loaded(about);
    progress_ = progress_in(about);
  };
  const auto compute = [&]() -> std::optional<RecordedStep> {
    if (stop_ != 0) return std::nullopt;
    const Enqueued enqueued = enqueue_step(true);
    const auto numbers = training_.numbers(enqueued.step);
    stop_ = std::max(stop_, numbers.stop);
    return RecordedStep{.step = enqueued.step,
                        .learning_rate = enqueued.learning_rate,
                        .loss = numbers.loss,
                        .grad_norm = numbers.grad_norm,
                        .weight_hash = hex_of(read_weight_hash(enqueued.step))};
  };
  replay_steps(run_, options_.verify_steps, world_, load, compute);
  training_.trace().take();
  load(now.step);
  progress_ = now;
}

// As the run computed them up to the checkpoint; without one, as an earlier start left it.
void Trainer::choose_products(const std::optional<Json>& about) {
  if (!compute_.is_cuda()) return;
  const auto file = run_.numerics();
  const auto where = about ? checkpoint_path(run_.checkpoints(), step()) : file;
  const auto recorded = [&] {
    if (about) return about->at("numerics");
    return path_exists(file) ? read_numerics(file) : Json();
  };
  numerics_ = choose_numerics(training_, compute_, recorded, where.string());
  Json json;
  add_to(json, *numerics_);
  if (is_first()) write_text(file, json.dump(2) + "\n");
}

void Trainer::initialize(const std::filesystem::path& weights) {
  training_.initialize();
  if (weights.empty()) {
    log_info("starting from random weights, seed ", config_.train.seed, "; the run is kept in ",
             run_.path().string());
    return;
  }
  const auto source = find_model(weights);
  check_same_model(source.model, config_.model, str(weights.string(), " holds"));
  load_weights(source, training_.params(), compute_);
  log_info("starting from the weights in ", source.path.string(), "; the run is kept in ",
           run_.path().string());
}

// Of the step that was finished last. Training waits while an earlier one is written.
void Trainer::begin_save() {
  const auto begin = Clock::now();
  await_save();
  // The one before may come to be the last good one while this is written.
  std::vector<std::int64_t> keep{progress_.good_step, saved_step_};
  std::erase(keep, -1);
  Json about = describe_run(progress_, facts());
  if (validation_loss_ && std::isfinite(*validation_loss_))
    about.set("validation_loss", *validation_loss_);
  if (!weight_hash_) {
    training_.weight_hash().enqueue(compute_);
    weight_hash_ = read_weight_hash(step());
  }
  about.set("weight_hash", hex_of(*weight_hash_));
  state_.take();
  training_.hold_update(state_.taken());
  saving_ = true;
  checkpoints_.begin({.step = step(),
                      .copied = state_.taken(),
                      .about = std::move(about),
                      .keep = std::move(keep),
                      // A run that goes on from here does not write again what its logs say of the
                      // steps before.
                      .first = [this] { log_.sync(); }});
  const double seconds = checkpoint_seconds_ = seconds_since(begin);
  meter_.spent_between_steps(Phase::checkpoint, seconds, config_.checkpoint.every_steps);
}

// A run that goes on some day finds it on the machines.
void Trainer::finish_copies(bool must) {
  try {
    checkpoints_.finish();
  } catch (const DataError&) {  // the log has said it
    if (must) throw;
  }
}

void Trainer::await_save() {
  if (!std::exchange(saving_, false)) return;
  if (const auto saved = checkpoints_.wait()) told(*saved);
}

// A periodic save that cannot be written is tried again when the next one is due: all ranks are
// told of it.
void Trainer::told(const BackgroundSave::Outcome& outcome) {
  try {
    if (outcome.error) std::rethrow_exception(outcome.error);
    saved_step_ = outcome.step;
    const auto bytes = static_cast<double>(outcome.bytes);
    log_info("saved step ", outcome.step, " in ", human_seconds(outcome.seconds), ": ",
             human_bytes(bytes), ", ", human_bytes(bytes / outcome.seconds), "/s");
  } catch (const DataError& error) {
    if (ending_) throw;
    log_warning("step ", outcome.step, " is not saved: ", error.what(), "; the run goes on");
  }
}

}  // namespace

int train(const TrainOptions& options, const RunRanks& ranks) {
  Trainer trainer(options, ranks);
  return ranks.world.ends_all([&] { return trainer.run(); });
}

}  // namespace lockstep
