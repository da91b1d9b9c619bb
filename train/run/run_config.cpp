#include "train/run/run_config.h"

#include <algorithm>

#include "core/thread_pool.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/job/rank_consistency.h"
#include "train/layout.h"
#include "train/run/attention_choice.h"
#include "train/step/loss_sum.h"
#include "train/step/numerics.h"

namespace lockstep {
namespace {

// Larger models have kernels long enough to be launched one by one. A graph captures one stream,
// but offloading and several ranks use more.
bool has_cuda_graphs(const Config& c) {
  if (c.layout.ranks > 1) return false;
  constexpr std::int64_t kMostParameters = 1'000'000'000;
  if (c.train.cuda_graphs == Config::CudaGraphs::automatic)
    return parameter_count(c.model) <= kMostParameters && !c.train.offloads();
  return c.train.cuda_graphs == Config::CudaGraphs::on;
}

}  // namespace

Config with_rows(Config written, RowKind rows) {
  written.data.rows = rows;
  written.data.document_mask = written.data.document_mask || rows == RowKind::packed;
  return written;
}

RunConfig settle(Config written, RowKind rows, Stream& compute, World& world) {
  Config config = with_rows(std::move(written), rows);
  config.train.threads = threads_of(config);
  config.train.attention = attention_of(config, compute);
  if (compute.is_cuda() && world.size() > 1)
    agree(world, "numerics",
          fields_of(numerics_here(compute, world.size()), in_words(config.train.attention)));
  return RunConfig(std::move(config));
}

int threads_of(const Config& c) {
  return c.train.threads > 0 ? static_cast<int>(c.train.threads) : processors_allowed();
}

TrainingConfig training_config(const Config& c) {
  return {.model = c.model,
          .recompute = c.train.recompute,
          .offload_activations = c.train.offload_activations,
          .offload_optimizer = c.train.offload_optimizer,
          .compute = c.precision.compute,
          .cudnn_attention = c.train.attention == Config::Attention::cudnn,
          .stochastic_rounding = c.precision.compute == DType::bf16 && !c.precision.master_weights,
          .fp8 = c.precision.fp8,
          .fp8_gradients = c.precision.fp8_gradients == Config::Fp8Gradients::e4m3
                               ? DType::fp8_e4m3
                               : DType::fp8_e5m2,
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
          .seed = c.train.seed,
          .cuda_graphs = has_cuda_graphs(c),
          .mesh = mesh_of(c.layout, static_cast<int>(c.layout.ranks)),
          .sharding = c.layout.sharding,
          .reduce = c.layout.reduce,
          .tensor_chunks = c.layout.tensor_chunks,
          .keep_gathered = c.layout.keep_gathered};
}

Loader::Config train_loader(const Config& c, ShardFiles& files) {
  return {.sources = c.data.sources(),
          .seed = c.data.seed,
          .sequence_length = static_cast<int>(c.train.sequence_length),
          .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length,
          .vocabulary = c.model.vocabulary,
          .document_mask = c.data.document_mask,
          .rows = c.data.rows,
          .shuffle_shards = c.data.shuffle_shards,
          .files = &files};
}

Loader::Config validation_loader(const Config& c, ShardFiles& files) {
  Loader::Config loader = train_loader(c, files);
  loader.sources = {{.paths = c.data.validation}};
  loader.shuffle_shards = 0;
  loader.global_batch_sequences = c.train.micro_batch * data_ranks(c.layout);
  loader.shuffle = false;
  loader.repeat = false;
  loader.most_samples = most_windows(c.eval.tokens, c.train.sequence_length);
  return loader;
}

std::int64_t sample_length(const Config& c) {
  // The document token, and up to three tokens per byte, because normalization may expand a byte.
  const auto each = c.model.vocabulary == ByteTokenizer::kVocabulary ? 1 : 3;
  const auto prompt = 1 + each * std::ssize(c.log.sample_prompt);
  return std::min(prompt + c.log.sample_tokens, c.model.max_positions);
}

}  // namespace lockstep
