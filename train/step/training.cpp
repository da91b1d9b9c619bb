#include "train/step/training.h"

#include <cmath>

#include "core/philox.h"
#include "dist/collective_ring.h"
#include "dist/nccl_memory.h"
#include "kernels/elementwise.h"
#include "train/step/batch_shape.h"

namespace lockstep {
namespace {

AdamWConfig adamw_of(const TrainingConfig& config) {
  AdamWConfig adamw = config.adamw;
  adamw.nominal_tokens = config.step_tokens();
  adamw.seed = config.seed;
  return adamw;
}

// Bytes of a chunk's logits. Each chunk reads and writes the head's whole gradient, which costs a
// GPU more time.
std::int64_t logits_bytes(Device device) {
  return std::int64_t{device.kind == Device::Kind::cuda ? 1024 : 256} << 20;
}

}  // namespace

Training::Training(const TrainingConfig& config, Stream& compute, Arenas& arenas, Comms comms)
    : config_(config),
      compute_(compute),
      arenas_(arenas),
      trace_(compute),
      comms_(std::move(comms)),
      params_(comms_, {.sharding = config.sharding,
                       .keep_gathered = config.keep_gathered,
                       .compute_dtype = config.compute,
                       .stochastic_rounding = config.stochastic_rounding,
                       .fp8 = config.fp8,
                       .fp8_gradients = config.fp8_gradients}),
      transformer_(
          params_, config.model,
          {.recompute = config.recompute,
           .head = {.logits_bytes = logits_bytes(compute.device()), .z_loss = config.z_loss}}),
      optimizer_(params_, {.adamw = adamw_of(config), .moments = config.moments}) {
  LOCKSTEP_CHECK(comms_.mesh == config.mesh && comms_.reduce == config.reduce,
                 "the communicators belong to another mesh, or sum in another way");
  LOCKSTEP_CHECK(config.mesh.world() == 1 || !config.cuda_graphs, "CUDA graphs need a single rank");
  Arena& arena = arenas.device;
  const bool offloads = config.offload_activations || config.offload_optimizer;
  LOCKSTEP_CHECK(!offloads || !config.cuda_graphs,
                 "offload and CUDA graphs, which capture one stream");
  Arena* state = config.offload_optimizer && compute.is_cuda() ? &arenas.pinned : nullptr;
  params_.allocate(arena, compute, state);
  optimizer_.allocate(arena, compute, state);
  const auto shape = batch_shape(config.micro_batch_sequences, config.sequence_length);
  if (config.offload_activations && compute.is_cuda()) {
    copies_.emplace(compute.device(), "copies",
                    compute.is_measuring() ? Stream::Mode::measuring : Stream::Mode::immediate);
    copies_->set_op_log(compute.op_log());
    const Offload::To to{*copies_, arenas.pinned};
    transformer_.allocate(arena, context(shape), 1, &to);
  } else {
    transformer_.allocate(arena, context(shape), 1);
  }
  learning_rate_ = arena.allocate("learning_rate", DType::fp32, {1});
  step_ = arena.allocate("step", DType::int32, {1});
  loss_sum_ = arena.allocate("loss_sum", DType::fp32, {1});
  valid_tokens_ = arena.allocate("valid_tokens", DType::int32, {1});
  signal_ = arena.allocate("signal", DType::int32, {1});
  const auto mirror = [&](const char* name, Tensor t) { return Mirror(name, t, arenas.pinned); };
  evaluated_ = LossReader(loss_sum_, valid_tokens_, arenas.pinned);
  weight_hash_.emplace(params_, arena, arenas.pinned);
  rank_times_.emplace(comms_, arena, arenas.pinned);
  for (Outcome& outcome : outcomes_) {
    outcome.loss_sum = mirror("loss_sum", loss_sum_);
    outcome.valid_tokens = mirror("valid_tokens", valid_tokens_);
    outcome.control = mirror("adamw_control", optimizer_.control());
    outcome.signal = mirror("signal", signal_);
  }
  batch_ = DeviceBatch(config.micro_batch_sequences, config.sequence_length, arena);
}

void Training::initialize() {
  params_.initialize(compute_, config_.seed);
}

// The sequences have no padding.
Batch Training::random_batch(Arena& pinned) const {
  const auto B = config_.micro_batch_sequences, T = config_.sequence_length;
  const Tensor all = pinned.allocate("random_batch", DType::int32, {3, B * T});
  auto* values = all.as<std::int32_t>();
  for (std::int64_t i = 0; i < B * T; ++i) {
    const auto drawn =
        philox(config_.seed, purpose_of("random_batch"), static_cast<std::uint64_t>(i));
    const auto vocabulary = static_cast<std::uint32_t>(config_.model.vocabulary);
    values[i] = static_cast<std::int32_t>(drawn[0] % vocabulary);
    values[B * T + i] = static_cast<std::int32_t>(drawn[1] % vocabulary);
    values[2 * B * T + i] = static_cast<std::int32_t>(i % T);
  }
  const auto part = [&](std::int64_t i) { return all.rows(i, 1).view({B, T}); };
  return {.inputs = part(0), .targets = part(1), .positions = part(2), .document_start = {}};
}

ChosenAlgorithms Training::choose_matmul_algorithms(const MatmulAlgorithms& recorded) {
  Arena pinned(compute_.device(), Arena::Memory::pinned_host,
               3 * config_.micro_batch_sequences * config_.sequence_length *
                   bytes_per_element(DType::int32));
  const Batch batch = random_batch(pinned);
  params_.draw_weights(compute_, config_.seed);  // GPUs multiply zeros faster
  const auto run = [&] {
    begin_step(1, 0);
    micro_step(batch, /*last=*/false);
    micro_step(batch);  // its matmuls add to the gradients of the first
    trace_.end_step();
    evaluate(batch);
    evaluated();
  };
  auto chosen =
      lockstep::choose_matmul_algorithms(compute_, recorded, run, held_multiprocessors(comms_));
  trace_.take();
  step_number_ = 0;
  return chosen;
}

StepContext Training::context(const Batch& batch) {
  LOCKSTEP_CHECK(!config_.cudnn_attention || !batch.document_start,
                 "a batch with documents, but attention by cuDNN");
  return {.compute = compute_,
          .scratch = arenas_.device,
          .params = params_,
          .comms = comms_,
          .positions = batch.positions,
          .document_start = batch.document_start,
          .rope_table = {},
          .cudnn_attention = config_.cudnn_attention,
          .fp8 = config_.fp8,
          .tensor_chunks = config_.tensor_chunks};
}

Targets Training::targets(const Batch& batch) const {
  return {.ids = batch.targets.view({batch.targets.elements()}),
          .loss_sum = loss_sum_,
          .valid_tokens = valid_tokens_,
          .gradient_scale = 1.0f / static_cast<float>(config_.step_tokens())};
}

void Training::begin_step(std::int64_t step, double learning_rate, int signal) {
  is_timed_ = !compute_.is_cuda() || step_number_ == 0 || step % kTimedSteps == 0 || held_by_;
  step_number_ = step;
  is_first_ = true;
  if (auto* ring = comms_.world->ring()) ring->begin_step(step);
  trace_.begin_step(is_timed_);
  // The inputs that change with every step, except its batches, are not in a graph.
  fill(compute_, learning_rate_, static_cast<float>(learning_rate));
  fill_integer(compute_, step_, static_cast<std::int32_t>(step));
  fill_integer(compute_, signal_, signal);
  repeat(begin_, [&] {
    fill(compute_, loss_sum_, 0.0f);
    fill(compute_, valid_tokens_, 0.0f);
    params_.begin_step(compute_);
  });
}

void Training::set_timeline(Timeline* timeline) {
  compute_.set_timeline(timeline);
  params_.set_timeline(timeline);
}

void Training::repeat(Graph& graph, FunctionRef<void()> work) {
  if (!config_.cuda_graphs || is_timed_ || compute_.timeline() != nullptr) return work();
  graph.run(compute_, work);
}

Event Training::micro_step(const Batch& pinned, bool last) {
  const Shape expected{config_.micro_batch_sequences, config_.sequence_length};
  LOCKSTEP_CHECK(pinned.inputs.shape == expected, "a micro-batch of ", pinned.inputs.shape,
                 ", expected ", expected);
  const Batch batch = batch_.copy(compute_, pinned);
  Event read = compute_.record();
  const bool is_first = std::exchange(is_first_, false);
  params_.begin_micro_batch(is_first);
  repeat(is_first ? first_micro_step_ : micro_step_, [&] {
    const StepContext step = context(batch);
    const auto inputs = batch.inputs.view({batch.inputs.elements()});
    transformer_.forward(step, 0, inputs, targets(batch), last);
    transformer_.backward(step, 0, inputs, last);
  });
  return read;
}

void Training::finish_step() {
  if (const auto held_by = std::exchange(held_by_, std::nullopt)) {
    const Trace::Span span(compute_, Component::checkpoint);
    compute_.wait(*held_by);
  }
  repeat(finish_, [&] {
    params_.finish_backward(compute_);
    sum_over_ranks(compute_, comms_, loss_sum_, valid_tokens_);
    comms_.all->all_reduce(signal_, ReduceOp::max, compute_);
    const Trace::Span span(compute_, Component::optimizer);
    optimizer_.step(compute_, arenas_.device,
                    {.learning_rate = learning_rate_,
                     .step = step_,
                     .loss_sum = loss_sum_,
                     .valid_tokens = valid_tokens_});
  });
  trace_.end_step();
  Outcome& outcome = outcome_of(step_number_);
  outcome.step = step_number_;
  for (const Mirror* m :
       {&outcome.loss_sum, &outcome.valid_tokens, &outcome.control, &outcome.signal})
    m->fetch(compute_);
  outcome.done = compute_.record();
}

Event Training::evaluate(const Batch& pinned) {
  const Batch batch = batch_.copy(compute_, pinned);
  Event was_read = compute_.record();
  evaluated_.enqueue(transformer_, context(batch), batch);
  return was_read;
}

Training::Outcome& Training::outcome_of(std::int64_t step) {
  return outcomes_[static_cast<std::size_t>(step % 2)];
}

Training::Numbers Training::numbers(std::int64_t step) {
  const Outcome& outcome = outcome_of(step);
  LOCKSTEP_CHECK(outcome.step == step, "results of step ", step, ", the last one is ",
                 step_number_);
  outcome.done.synchronize();
  // Prints "nan", never "-nan".
  const auto unsigned_nan = [](double x) { return std::isnan(x) ? std::abs(x) : x; };
  const AdamWDecision decision = read_control(outcome.control.host());
  Numbers n;
  n.valid_tokens = *outcome.valid_tokens.host().as<std::int32_t>();
  n.loss = unsigned_nan(LossSum{*outcome.loss_sum.host().as<float>(), n.valid_tokens}.mean());
  n.grad_norm = unsigned_nan(decision.grad_norm);
  n.applied = decision.applied;
  n.signal = *outcome.signal.host().as<std::int32_t>();
  return n;
}

std::vector<std::int32_t> Training::sample(std::span<const std::int32_t> prompt,
                                           std::int64_t tokens, const Sampling& sampling) {
  std::vector<std::int32_t> text;
  const Prompt one{.ids = {prompt.begin(), prompt.end()}, .tokens = tokens};
  generate(context({}), transformer_, arenas_.pinned, {&one, 1}, sampling,
           [&](std::size_t, std::int32_t token) {
             text.push_back(token);
             return true;
           });
  return text;
}

void measure_beside_steps(Training& training, Stream& compute) {
  const auto& config = training.config();
  training.evaluate(batch_shape(config.micro_batch_sequences, config.sequence_length));
  training.weight_hash().enqueue(compute);
  if (config.sample_tokens > 0)
    training.sample(std::vector<std::int32_t>(static_cast<std::size_t>(config.sample_tokens)), 0,
                    {});
}

Arenas::Bytes measure_training(const TrainingConfig& config, Device device, int threads, int rank) {
  Stream compute(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  LoneWorld one_of_all(rank, config.mesh.world());
  Training training(config, compute, arenas,
                    make_comms(one_of_all, config.mesh, nullptr, config.reduce));
  const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
  training.begin_step(1, 0);
  training.micro_step(batch);
  training.finish_step();
  measure_beside_steps(training, compute);
  return arenas.peak();
}

}  // namespace lockstep
