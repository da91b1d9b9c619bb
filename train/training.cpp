#include "train/training.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "train/batch_shape.h"

namespace lockstep {
namespace {

AdamWConfig with_nominal_tokens(AdamWConfig adamw, std::int64_t tokens) {
  adamw.nominal_tokens = tokens;
  return adamw;
}

}  // namespace

Training::Training(const TrainingConfig& config, Stream& compute, Arenas& arenas)
    : config_(config),
      compute_(compute),
      arenas_(arenas),
      comms_(make_comms(Mesh{})),
      params_(Mesh{}, comms_,
              {.compute_dtype = config.compute, .stochastic_rounding = config.stochastic_rounding}),
      transformer_(params_, config.model,
                   {.recompute = config.recompute, .head = {.z_loss = config.z_loss}}),
      optimizer_(params_, {.adamw = with_nominal_tokens(config.adamw, config.step_tokens()),
                           .moments = config.moments,
                           .seed = config.seed}) {
  Arena& arena = arenas.device;
  params_.allocate(arena, compute);
  optimizer_.allocate(arena, compute);
  transformer_.allocate(
      arena, context(batch_shape(config.micro_batch_sequences, config.sequence_length)), 1);
  learning_rate_ = arena.allocate("learning_rate", DType::fp32, {1});
  step_ = arena.allocate("step", DType::int32, {1});
  loss_sum_ = arena.allocate("loss_sum", DType::fp32, {1});
  valid_tokens_ = arena.allocate("valid_tokens", DType::int32, {1});
  const auto mirror = [&](const char* name, Tensor t) { return Mirror(name, t, arenas.pinned); };
  evaluated_loss_ = mirror("evaluated_loss", loss_sum_);
  evaluated_tokens_ = mirror("evaluated_tokens", valid_tokens_);
  for (Outcome& outcome : outcomes_) {
    outcome.loss_sum = mirror("loss_sum", loss_sum_);
    outcome.valid_tokens = mirror("valid_tokens", valid_tokens_);
    outcome.control = mirror("adamw_control", optimizer_.control());
  }
  batch_ = DeviceBatch(config.micro_batch_sequences, config.sequence_length, arena);
}

void Training::initialize() {
  params_.initialize(compute_, config_.seed);
}

StepContext Training::context(const Batch& batch) {
  LOCKSTEP_CHECK(!config_.cudnn_attention || !batch.document_start,
                 "a batch with documents, but attention by cuDNN");
  return {.compute = compute_,
          .scratch = arenas_.device,
          .params = params_,
          .comms = comms_,
          .trace = trace_,
          .positions = batch.positions,
          .document_start = batch.document_start,
          .rope_table = {},
          .cudnn_attention = config_.cudnn_attention};
}

Targets Training::targets(const Batch& batch) const {
  return {.ids = batch.targets.view({batch.targets.elements()}),
          .loss_sum = loss_sum_,
          .valid_tokens = valid_tokens_,
          .gradient_scale = 1.0f / static_cast<float>(config_.step_tokens())};
}

void Training::begin_step(std::int64_t step, double learning_rate) {
  step_number_ = step;
  trace_.begin_step();
  fill(compute_, loss_sum_, 0.0f);
  fill(compute_, valid_tokens_, 0.0f);
  fill(compute_, learning_rate_, static_cast<float>(learning_rate));
  fill_integer(compute_, step_, static_cast<std::int32_t>(step));
  params_.begin_step(compute_);
}

Event Training::micro_step(const Batch& pinned) {
  const Batch batch = batch_.copy(compute_, pinned);
  Event read = compute_.record();
  const StepContext step = context(batch);
  const auto inputs = batch.inputs.view({batch.inputs.elements()});
  transformer_.forward(step, 0, inputs, targets(batch));
  transformer_.backward(step, 0, inputs);
  return read;
}

void Training::finish_step() {
  params_.finish_backward(compute_);
  {
    const Trace::Span span(trace_, Phase::optimizer, compute_);
    optimizer_.step(compute_, arenas_.device,
                    {.learning_rate = learning_rate_,
                     .step = step_,
                     .loss_sum = loss_sum_,
                     .valid_tokens = valid_tokens_});
  }
  trace_.end_step();
  Outcome& outcome = outcome_of(step_number_);
  outcome.step = step_number_;
  for (const Mirror* m : {&outcome.loss_sum, &outcome.valid_tokens, &outcome.control})
    m->fetch(compute_);
  outcome.done = compute_.record();
}

LossSum Training::evaluate(const Batch& pinned) {
  const Batch batch = batch_.copy(compute_, pinned);
  return evaluate_batch(transformer_, context(batch), batch, evaluated_loss_, evaluated_tokens_);
}

Training::Outcome& Training::outcome_of(std::int64_t step) {
  return outcomes_[static_cast<std::size_t>(step % 2)];
}

Training::Numbers Training::numbers(std::int64_t step) {
  const Outcome& outcome = outcome_of(step);
  LOCKSTEP_CHECK(outcome.step == step, "numbers of step ", step, ", the last one is ",
                 step_number_);
  outcome.done.synchronize();
  const auto unsigned_nan = [](double x) { return std::isnan(x) ? std::abs(x) : x; };  // in print
  const AdamWDecision decision = read_control(outcome.control.host());
  Numbers n;
  n.valid_tokens = *outcome.valid_tokens.host().as<std::int32_t>();
  n.loss = unsigned_nan(LossSum{*outcome.loss_sum.host().as<float>(), n.valid_tokens}.mean());
  n.grad_norm = unsigned_nan(decision.grad_norm);
  n.applied = decision.applied;
  return n;
}

std::vector<std::int32_t> Training::sample(std::span<const std::int32_t> prompt,
                                           std::int64_t tokens, const Sampling& sampling) {
  std::vector<std::int32_t> text;
  generate(context({}), transformer_, arenas_.pinned,
           {.prompt = prompt, .tokens = tokens, .sampling = sampling}, [&](std::int32_t token) {
             text.push_back(token);
             return true;
           });
  return text;
}

Arenas::Bytes measure_training(const TrainingConfig& config, Device device, int threads) {
  Stream compute(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  Training training(config, compute, arenas);
  const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
  training.begin_step(1, 0);
  training.micro_step(batch);
  training.finish_step();
  training.evaluate(batch);
  if (config.sample_tokens > 0)
    training.sample(std::vector<std::int32_t>(static_cast<std::size_t>(config.sample_tokens)), 0,
                    {});
  return arenas.peak();
}

}  // namespace lockstep
