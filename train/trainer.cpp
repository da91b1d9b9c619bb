#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "checkpoint/checkpointer.h"
#include "core/cpu.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "kernels/peak.h"
#include "model/families.h"
#include "train/memory.h"
#include "train/meter.h"
#include "train/metrics_log.h"
#include "train/model_source.h"
#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/statistics.h"
#include "train/step_line.h"
#include "train/tensorboard.h"
#include "train/training.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& path : paths)
    text += (text.empty() ? "" : ", ") + path;
  return text;
}

double gib(std::int64_t bytes) {
  return std::round(static_cast<double>(bytes) / (1 << 30) * 100) / 100;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The prompt of samples: as a document starts, where tokens are bytes. Other vocabularies have no
// text here: their samples start from token 0 and are shown as ids.
std::vector<std::int32_t> sample_prompt(const Config& c) {
  if (c.model.vocabulary != kByteVocabulary) return {0};
  auto prompt = encode_bytes(c.log.sample_prompt);
  prompt.insert(prompt.begin(), kDocumentToken);
  return prompt;
}

std::int64_t sample_length(const Config& c) {
  const auto prompt = static_cast<std::int64_t>(sample_prompt(c).size());
  return std::min(prompt + c.log.sample_tokens, c.model.max_positions);
}

// Refuses initial weights of another model, naming the first size that differs.
void check_same_model(const ModelConfig& there, const ModelConfig& here, const std::string& path) {
  const auto check = [&](const char* key, auto in_file, auto in_config) {
    if (in_file != in_config)
      throw ConfigError(str("train.init_from: ", path, " holds a model with ", key, " = ", in_file,
                            ", but model.", key, " is ", in_config));
  };
  check("family", std::string(name(there.family)), std::string(name(here.family)));
  check("layers", there.layers, here.layers);
  check("width", there.width, here.width);
  check("heads", there.heads, here.heads);
  check("kv_heads", there.kv_heads, here.kv_heads);
  check("head_size", there.head_size, here.head_size);
  check("mlp_width", there.mlp_width, here.mlp_width);
  check("vocabulary", there.vocabulary, here.vocabulary);
  check("tied_head", there.tied_head, here.tied_head);
  check("rope_theta", there.rope_theta, here.rope_theta);
  check("norm_epsilon", there.norm_epsilon, here.norm_epsilon);
  if (here.learned_positions) check("max_positions", there.max_positions, here.max_positions);
}

// What a run on this machine is built of, from the configuration.
TrainingConfig training_config(const Config& c) {
  return {.model = c.model,
          .recompute = c.train.recompute,
          .compute = c.precision.compute,
          .stochastic_rounding = c.precision.compute == DType::bf16 && !c.precision.master_weights,
          .moments = c.precision.moments,
          .adamw = {.beta1 = static_cast<float>(c.optimizer.beta1),
                    .beta2 = static_cast<float>(c.optimizer.beta2),
                    .epsilon = static_cast<float>(c.optimizer.epsilon),
                    .weight_decay = static_cast<float>(c.optimizer.weight_decay),
                    .clip_norm = static_cast<float>(c.optimizer.clip_norm)},
          .z_loss = static_cast<float>(c.optimizer.z_loss),
          .sequence_length = c.train.sequence_length,
          .micro_batch_sequences = c.train.micro_batch,
          .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length,
          .sample_tokens = c.log.sample_every_steps > 0 ? sample_length(c) : 0,
          .seed = c.train.seed};
}

Loader::Config train_loader(const Config& c) {
  return {.datasets = c.data.train,
          .seed = c.data.seed,
          .sequence_length = static_cast<int>(c.train.sequence_length),
          .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length,
          .vocabulary = c.model.vocabulary,
          .document_mask = c.data.document_mask};
}

// Held-out windows in the order of the dataset, each once.
Loader::Config validation_loader(const Config& c) {
  Loader::Config loader = train_loader(c);
  loader.datasets = c.data.validation;
  loader.global_batch_sequences = c.train.micro_batch;
  loader.shuffle = false;
  loader.repeat = false;
  return loader;
}

// Threads of this run: what the configuration says, or every processor it may run on.
int threads(const Config& c) {
  return c.train.threads > 0 ? static_cast<int>(c.train.threads) : processors_allowed();
}

// A run's loaders take their buffers from here.
std::int64_t pinned_bytes(const Config& c) {
  Arena pinned = Arena::measure(Device{});
  const auto B = static_cast<int>(c.train.micro_batch);
  const Loader train(train_loader(c), B, 0, 1, pinned);
  if (!c.data.validation.empty()) const Loader validation(validation_loader(c), B, 0, 1, pinned);
  return pinned.peak_bytes();
}

// The bytes a step takes. Refused before anything is allocated where this machine has less.
std::int64_t checked_bytes(const Config& c) {
  const auto needed = measure_training(training_config(c), threads(c));
  const auto available = available_memory_bytes();
  if (needed > available)
    throw ConfigError(str("this run needs ", gib(needed), " GiB of memory, and ", gib(available),
                          " GiB are free on this machine; make model or train.micro_batch smaller, "
                          "or keep fewer activations with train.recompute = \"block\""));
  return needed;
}

Meter::Config meter_config(const Config& c, Stream& compute) {
  const auto flops = flops_per_token(c.model, c.train.sequence_length);
  return {.steps = c.train.steps,
          .step_tokens = c.train.batch_tokens,
          .flops_per_token = flops.causal,
          .flops_per_token_square = flops.square,
          .peak_flops = measure_peak_flops(compute, c.precision.compute),
          .limit_bytes = machine_memory_bytes()};
}

class Trainer {
 public:
  explicit Trainer(const TrainOptions& options);
  int run();

 private:
  void announce() const;
  void start();  // from the newest checkpoint, or from the beginning
  void resume(const Json& about);
  StepReport train_step();
  void report(StepReport report);
  double evaluate();
  void sample();
  Json about() const;
  void save();
  void sync_logs();
  void check_skipped(const StepReport& report);

  // Whether what happens every so many steps (0: only at the end) is due after this step.
  bool due(std::int64_t every_steps) const {
    return step_ == steps() || (every_steps > 0 && step_ % every_steps == 0);
  }
  std::int64_t steps() const { return config_.train.steps; }

  const TrainOptions& options_;
  const Config& config_;
  RunDirectory run_;
  Stream compute_;
  Arena arena_;
  Training training_;
  Arena pinned_;
  Loader loader_;
  std::optional<Loader> validation_;
  Checkpointer checkpointer_;
  Meter meter_;
  SpikeStatistics statistics_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;

  std::int64_t step_ = 0;          // done so far
  std::int64_t first_sample_ = 0;  // of the next step
  std::int64_t saved_step_ = -1;   // of the newest checkpoint
  std::int64_t skipped_in_a_row_ = 0;
};

Trainer::Trainer(const TrainOptions& options)
    : options_(options),
      config_(options.config),
      run_(options.run),
      compute_(options.device, "compute", Stream::Mode::immediate, lockstep::threads(config_)),
      arena_(options.device, Arena::Memory::device, checked_bytes(config_)),
      training_(training_config(config_), compute_, arena_),
      pinned_(options.device, Arena::Memory::pinned_host, pinned_bytes(config_)),
      loader_(train_loader(config_), static_cast<int>(config_.train.micro_batch), 0, 1, pinned_),
      checkpointer_(run_.checkpoints(), state_slices(training_.params(), training_.optimizer()),
                    static_cast<int>(config_.checkpoint.keep_last)),
      meter_(meter_config(config_, compute_)) {
  if (!config_.data.validation.empty())
    validation_.emplace(validation_loader(config_), static_cast<int>(config_.train.micro_batch), 0,
                        1, pinned_);
}

int Trainer::run() {
  const StopSignals signals;
  start();
  if (step_ >= steps()) {
    log_info("all ", steps(), " steps are done; raise train.steps to go on");
    return 0;
  }
  write_text(run_.config(), options_.resolved_config);
  metrics_.emplace(run_.metrics(), step_);
  if (config_.log.tensorboard) tensorboard_.emplace(run_.path(), step_);
  bool save_due = false;
  while (step_ < steps()) {
    const StepReport done = train_step();
    report(done);
    const auto stop = signals.exit_code();
    // A checkpoint of a step that was skipped waits for a good one, unless there is no time.
    save_due = save_due || due(config_.checkpoint.every_steps);
    if (stop || step_ == steps() || (save_due && !done.skipped)) {
      save();
      save_due = false;
    }
    if (stop) {
      log_info("stopped by a signal after step ", step_, "; the same command goes on from there");
      return *stop;
    }
  }
  return 0;
}

StepReport Trainer::train_step() {
  ++step_;
  meter_.begin_step();
  const double waited = loader_.waited_seconds();
  const double rate =
      learning_rate(config_.schedule, config_.optimizer.learning_rate, step_, steps());
  training_.begin_step(step_, rate);
  for (int m = 0; m < loader_.micro_steps(); ++m) {
    const Batch batch = loader_.batch(first_sample_, m);
    training_.micro_step(batch);
    loader_.release(batch, compute_.record());
  }
  training_.finish_step();
  first_sample_ += training_.config().global_batch_sequences;
  const auto numbers = training_.numbers();

  StepReport report =
      meter_.finish_step(step_, loader_.waited_seconds() - waited, training_.trace());
  report.loss = numbers.loss;
  report.grad_norm = numbers.grad_norm;
  report.valid_tokens = numbers.valid_tokens;
  report.skipped = !numbers.applied;
  report.learning_rate = rate;
  return report;
}

// One line for people, one object for programs.
void Trainer::report(StepReport report) {
  statistics_.observe(report);
  check_skipped(report);
  if (validation_ && due(config_.eval.every_steps)) report.validation_loss = evaluate();
  if (due(config_.log.every_steps) || report.validation_loss) print_step(report);
  metrics_->append(report);
  if (tensorboard_) tensorboard_->append(report);
  if (config_.log.sample_every_steps > 0 && due(config_.log.sample_every_steps)) sample();
}

void Trainer::check_skipped(const StepReport& report) {
  if (!report.skipped) {
    skipped_in_a_row_ = 0;
    return;
  }
  log_warning("step ", report.step, ": loss ", report.loss, ", gradient norm ", report.grad_norm,
              "; the update is skipped, nothing changed");
  if (++skipped_in_a_row_ < config_.train.most_skipped) return;
  throw Error(str(skipped_in_a_row_, " updates in a row were skipped, the last one at step ",
                  report.step, "; ",
                  saved_step_ < 0 ? std::string("there is no checkpoint yet")
                                  : str("the last good checkpoint is step ", saved_step_, " in ",
                                        run_.checkpoints().string()),
                  ". Lower optimizer.learning_rate, or look at the data around this step"));
}

void Trainer::sample() {
  const auto prompt = sample_prompt(config_);
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length >= sample_length(config_))
    throw ConfigError(str("log.sample_prompt: ", length,
                          " tokens, but the model has positions for ", config_.model.max_positions,
                          "; shorten it"));
  const auto tokens = training_.sample(prompt, sample_length(config_) - length,
                                       {.temperature = 0.8f, .seed = config_.train.seed});
  std::string text = config_.log.sample_prompt;
  if (config_.model.vocabulary == kByteVocabulary)
    text += decode_bytes(tokens);
  else
    for (const auto token : tokens)
      text += str(" ", token);
  log_info("sample after step ", step_, ": ", text);
  training_.trace().take();
}

double Trainer::evaluate() {
  const auto begin = Clock::now();
  const auto B = config_.train.micro_batch, T = config_.train.sequence_length;
  auto samples = validation_->samples();
  if (config_.eval.tokens > 0) samples = std::min(samples, std::max(config_.eval.tokens / T, B));
  training_.begin_evaluation();
  for (std::int64_t first = 0; first < samples; first += B) {
    const Batch batch = validation_->batch(first, 0);
    training_.evaluate(batch);
    validation_->release(batch, compute_.record());
  }
  const double loss = training_.numbers().loss;
  training_.trace().take();
  meter_.spent_between_steps(Phase::evaluation, seconds_since(begin), config_.eval.every_steps);
  return loss;
}

void Trainer::announce() const {
  const auto& m = config_.model;
  const auto flops = flops_per_token(m, config_.train.sequence_length);
  log_info(name(m.family), ": ", human_count(static_cast<double>(parameter_count(m))),
           " parameters, ", m.layers, " layers, width ", m.width, "; ",
           name(config_.precision.compute), " on ", cpu_name(), " (", name(cpu_level()), ", ",
           compute_.threads(), " threads)");
  log_info("data: ", joined(config_.data.train), ", ",
           human_count(static_cast<double>(loader_.dataset().tokens())), " tokens; a step takes ",
           config_.train.batch_tokens, " of them in ", loader_.micro_steps(), " micro-batches of ",
           config_.train.micro_batch, " x ", config_.train.sequence_length);
  log_info("memory: ", gib(arena_.capacity_bytes()), " GiB for weights, optimizer and activations");
  log_info("MFU = tokens/s x ", human_count(flops.causal),
           " FLOP a token (6 a matrix weight, causal ", "attention; ", human_count(flops.square),
           " over the full square) / ", human_count(meter_.config().peak_flops),
           " FLOP/s, the measured peak of ", name(config_.precision.compute), " multiply-adds");
}

void Trainer::start() {
  announce();
  if (const auto newest = checkpointer_.latest()) {
    resume(checkpointer_.load(*newest));
    return;
  }
  training_.initialize();
  if (!config_.train.init_from.empty()) {
    const auto source = find_model(config_.train.init_from);
    check_same_model(source.model, config_.model, config_.train.init_from);
    load_weights(source, training_.params(), compute_);
    log_info("starting from the weights in ", source.path.string(), "; the run is kept in ",
             run_.path().string());
    return;
  }
  log_info("starting from random weights, seed ", config_.train.seed, "; the run is kept in ",
           run_.path().string());
}

// What a checkpoint says beside its tensors.
Json Trainer::about() const {
  Json data;
  data.set("seed", static_cast<std::int64_t>(config_.data.seed));
  data.set("first_sample", first_sample_);
  data.set("sequence_length", config_.train.sequence_length);
  data.set("dataset", joined(config_.data.train));
  data.set("fingerprint", loader_.dataset().fingerprint());
  Json numerics;
  numerics.set("device", "cpu");
  numerics.set("cpu_level", name(cpu_level()));
  numerics.set("threads", compute_.threads());
  Json about;
  about.set("step", step_);
  about.set("tokens_seen", step_ * config_.train.batch_tokens);
  about.set("seed", static_cast<std::int64_t>(config_.train.seed));
  about.set("data", data);
  about.set("model", config_to_huggingface(config_.model));
  about.set("numerics", numerics);
  about.set("configuration", options_.resolved_config);
  return about;
}

void Trainer::resume(const Json& about) {
  step_ = saved_step_ = about.at("step").as_integer();
  const Json& data = about.at("data");
  first_sample_ = data.at("first_sample").as_integer();
  const auto& before = data.at("fingerprint").as_string();
  const auto& now = loader_.dataset().fingerprint();
  if (before != now && !options_.allow_dataset_change)
    throw ConfigError(str("data.train: ", joined(config_.data.train), " is not what step ", step_,
                          " was trained on (fingerprint ", now, ", then ", before, " of ",
                          data.at("dataset").as_string(),
                          "); put the dataset back, or accept with --allow-dataset-change"));
  training_.params().refresh_weights(compute_);
  log_info("going on from step ", step_, " of ", steps(), " in ", run_.path().string());
  const Json& numerics = about.at("numerics");
  if (numerics.at("cpu_level").as_string() != name(cpu_level()) ||
      numerics.at("threads").as_integer() != compute_.threads())
    log_warning("step ", step_, " was computed with ", numerics.at("cpu_level").as_string(),
                " and ", numerics.at("threads").as_integer(), " threads, now ", name(cpu_level()),
                " and ", compute_.threads(), ": the run goes on, but not bitwise");
}

// A run that goes on from a checkpoint does not write again what its logs say of the steps before.
void Trainer::sync_logs() {
  metrics_->sync();
  if (tensorboard_) tensorboard_->sync();
}

void Trainer::save() {
  const auto begin = Clock::now();
  sync_logs();
  checkpointer_.save(step_, about());
  saved_step_ = step_;
  meter_.spent_between_steps(Phase::checkpoint, seconds_since(begin),
                             config_.checkpoint.every_steps);
  log_info("saved step ", step_, " in ", human_seconds(seconds_since(begin)));
}

}  // namespace

int train(const TrainOptions& options) {
  return Trainer(options).run();
}

}  // namespace lockstep
