// The table itself. A default is the initialiser of the member in train/config.h, unless the option
// has a rule.
#include <algorithm>
#include <array>

#include "launch/options.h"
#include "train/layout.h"

namespace lockstep {
namespace {

using Range = Option::Range;

constexpr std::array<std::string_view, 5> kFamilies{"gpt2", "llama3", "qwen2", "qwen3", "smollm3"};
constexpr std::array<std::string_view, 3> kAttentions{"auto", "cudnn", "own"};
constexpr std::array<std::string_view, 4> kDecays{"cosine", "linear", "constant", "wsd"};
constexpr std::array<std::string_view, 3> kFp8Products{"off", "tensor", "block"};
constexpr std::array<std::string_view, 2> kFp8Gradients{"e5m2", "e4m3"};
constexpr std::array<std::string_view, 2> kTypes{"fp32", "bf16"};  // the first of DType
constexpr std::array<std::string_view, 3> kCudaGraphs{"auto", "on", "off"};

constexpr std::array<std::string_view, 2> kCheckpointFiles{"rank", "node"};
constexpr std::array<std::string_view, 4> kRows{"auto", "windows", "examples", "packed"};

template <class Enum>
Choice choice(Enum& value, std::span<const std::string_view> names) {
  static_assert(sizeof(Enum) == 1);
  return {reinterpret_cast<unsigned char*>(&value), names};
}
// clang-format off
Field field_of(Family& value) { return choice(value, kFamilies); }
Field field_of(Recompute& value) { return choice(value, kRecomputeNames); }
Field field_of(Config::Attention& value) { return choice(value, kAttentions); }
Field field_of(Config::Decay& value) { return choice(value, kDecays); }
Field field_of(Fp8Products& value) { return choice(value, kFp8Products); }
Field field_of(Config::Fp8Gradients& value) { return choice(value, kFp8Gradients); }
Field field_of(Sharding& value) { return choice(value, kShardingNames); }
Field field_of(Config::CudaGraphs& value) { return choice(value, kCudaGraphs); }
Field field_of(Config::Checkpoint::Files& value) { return choice(value, kCheckpointFiles); }
Field field_of(RowKind& value) { return choice(value, kRows); }
Field field_of(DType& value) { return choice(value, kTypes); }
// clang-format on
template <class T>
Field field_of(T& value) {
  return &value;
}

constexpr Range kAny{};
constexpr Range kCount{0, 1e15};
constexpr Range kPositive{1, 1e15};
constexpr Range kRatio{0, 1};
constexpr Range kRanks{1, 1 << 20};
constexpr Range kSteps{1, 1'000'000'000};        // random numbers of a step: see kernels/adamw.h
constexpr Range kBatchTokens{1, 2'147'483'647};  // valid tokens of a step are counted in int32

std::int64_t default_vocabulary(Family family) {
  if (family == Family::gpt2) return 50257;
  return family == Family::qwen2 || family == Family::qwen3 ? 151936 : 128256;
}

std::int64_t default_max_positions(Family family) {
  switch (family) {
    case Family::gpt2: return 1024;
    case Family::llama3: return 8192;
    case Family::qwen2: return 32768;
    case Family::qwen3: return 40960;
    case Family::smollm3: return 65536;
  }
  return 0;
}

std::int64_t default_mlp_width(const ModelConfig& m) {
  if (!m.is_gated()) return 4 * m.width;
  const auto two_thirds = 8 * m.width / 3;  // three matrices that hold as much as two of 4 width
  return (two_thirds + 63) / 64 * 64;
}

// The fewest micro-batches of at most 4096 tokens, filled evenly, of the sequences of one rank.
std::int64_t default_micro_batch(const Config& c) {
  constexpr std::int64_t kTokens = 4096;
  const auto& t = c.train;
  const auto data_ranks = c.layout.replicate * c.layout.shard;
  const auto most = std::max<std::int64_t>(1, kTokens / t.sequence_length);
  const auto sequences =
      std::max<std::int64_t>(1, (t.batch_tokens / t.sequence_length + data_ranks - 1) / data_ranks);
  const auto micro_batches = (sequences + most - 1) / most;
  return (sequences + micro_batches - 1) / micro_batches;
}

double default_decay_fraction(const Config::Schedule& s) {
  return s.kind == Config::Decay::constant ? 0.0 : s.kind == Config::Decay::wsd ? 0.2 : 1.0;
}

double default_final_ratio(const Config::Schedule& s) {
  return s.kind == Config::Decay::constant ? 1.0 : s.kind == Config::Decay::cosine ? 0.1 : 0.0;
}

// Where a value lives, and the key that is its member's own path.
#define MEMBER(member) [](Config& c) -> Field { return field_of(c.member); }
#define KEY(member) #member, MEMBER(member)

// clang-format off
const Option kOptions[] = {
    // ------------------------------------------------------------------------------------ model
    {KEY(model.family), kAny, "", "The architecture, named after the models that made it known.",
     "required"},
    {KEY(model.layers), {1, kMostLayers}, "", "Transformer blocks.", "required"},
    {KEY(model.width), {1, kMostWidth}, "", "Length of a token's vector.", "required"},
    {KEY(model.heads), {1, kMostHeads}, "", "Query heads of attention.", "required"},
    {KEY(model.kv_heads), {1, kMostHeads}, "",
     "Key and value heads; each serves `heads / kv_heads` query heads.",
     "model.heads",
     [](Config& c) { c.model.kv_heads = c.model.heads; }},
    {KEY(model.head_size), {1, kMostHeadSize}, "", "Length of one head's vectors.",
     "model.width / model.heads",
     [](Config& c) { c.model.head_size = c.model.width / c.model.heads; }},
    {KEY(model.mlp_width), {1, kMostMlpWidth}, "", "Inner width of the MLP.",
     "gpt2: 4 x model.width; others: 8/3 of it, rounded up to a multiple of 64",
     [](Config& c) { c.model.mlp_width = default_mlp_width(c.model); }},
    {KEY(model.vocabulary), {2, kMostVocabulary}, "tokens",
     "Different token ids; 257 for text packed as bytes.",
     "gpt2: 50257; llama3, smollm3: 128256; qwen2, qwen3: 151936",
     [](Config& c) { c.model.vocabulary = default_vocabulary(c.model.family); }},
    {KEY(model.max_positions), {1, kMostPositions}, "tokens",
     "The longest sequence that the model is meant for.",
     "gpt2: 1024; llama3: 8192; qwen2: 32768; qwen3: 40960; smollm3: 65536",
     [](Config& c) { c.model.max_positions = default_max_positions(c.model.family); }},
    {KEY(model.norm_epsilon), {0, 1, true}, "", "Added to the variance (or mean square) in a norm.",
     "gpt2, llama3: 1e-5; others: 1e-6"},
    {KEY(model.rope_theta), {1, 1e15, true}, "", "Base of the rotary wavelengths; gpt2 has none.",
     "llama3: 5e5; qwen2, qwen3: 1e6; smollm3: 5e6"},
    {KEY(model.no_rope_every), {0, 1000}, "layers",
     "One layer in so many goes without positions; 0: none does.",
     "smollm3: 4; others: 0"},
    {"model.rope_scaling_factor", MEMBER(rope_scaling.factor), {1, 1e6}, "",
     "Stretches the wavelengths beyond the original context, as Llama 3.1 does; 1: none."},
    {"model.rope_scaling_low", MEMBER(rope_scaling.low_factor), {0, 1e6, true}, "turns",
     "Wavelengths with fewer turns in the original context are stretched whole."},
    {"model.rope_scaling_high", MEMBER(rope_scaling.high_factor), {0, 1e6, true}, "turns",
     "Wavelengths with more turns in the original context stay."},
    {"model.rope_scaling_context", MEMBER(rope_scaling.original_context), {1, 1 << 24}, "tokens",
     "The original context."},
    {KEY(model.tied_head), kAny, "", "The head uses the embedding's weights.",
     "gpt2, smollm3: true; others: false"},
    {KEY(model.qkv_bias), kAny, "", "The projections to queries, keys and values add a bias.",
     "gpt2, qwen2: true; others: false"},
    {KEY(model.out_bias), kAny, "", "So does attention's output projection.",
     "model.qkv_bias; qwen2: false",
     [](Config& c) { c.model.out_bias = c.model.family != Family::qwen2 && c.model.qkv_bias; }},
    {KEY(model.mlp_bias), kAny, "", "So do the matrices of the MLP.", "gpt2: true; others: false"},
    {KEY(model.init_std), {0, 10}, "", "Standard deviation of initial weights."},
    // ----------------------------------------------------------------------------------- layout
    {KEY(layout.tensor), kRanks, "ranks",
     "Ranks that share each matrix, and the tokens between matrices; within an NVLink domain. "
     "Divides model.heads, model.kv_heads and model.mlp_width."},
    {KEY(layout.shard), kRanks, "ranks",
     "Ranks that share one copy of the model's state, each with data of its own.",
     "the ranks that were started / (layout.replicate x layout.tensor)",
     [](Config& c) {
       const auto others = c.layout.replicate * c.layout.tensor;
       c.layout.shard = std::max<std::int64_t>(1, c.layout.ranks / others);
     }},
    {KEY(layout.replicate), kRanks, "ranks",
     "Copies of the model, each on the ranks of the other axes; their gradients are summed.",
     "if layout.shard is set, the ranks that were started / (layout.shard x layout.tensor); "
     "otherwise 1",
     // after layout.shard, which else takes all
     [](Config& c) {
       const auto others = c.layout.shard * c.layout.tensor;
       c.layout.replicate = std::max<std::int64_t>(1, c.layout.ranks / others);
     }},
    {KEY(layout.sharding), kAny, "",
     "What ranks of layout.shard share: nothing, the optimizer's state, gradients too, or all "
     "(ZeRO 0 to 3). More saves memory, less saves communication (docs/parallelism.md)."},
    {KEY(layout.keep_gathered), {0, kMostLayers}, "blocks",
     "With layout.sharding = \"full\": blocks whose weights stay whole once they are gathered, "
     "until the next update. Each takes more memory, and saves its gathers in all other forwards "
     "and backwards of a step."},
    // ------------------------------------------------------------------------------------ train
    {KEY(train.steps), kSteps, "steps", "Updates of the weights in the run."},
    {KEY(train.sequence_length), {1, 1 << 24}, "tokens", "Length of a training sequence.",
     "model.max_positions, at most 1024",
     [](Config& c) {
       c.train.sequence_length = std::min<std::int64_t>(1024, c.model.max_positions);
     }},
    {KEY(train.batch_tokens), kBatchTokens, "tokens",
     "Tokens of a step, a multiple of train.sequence_length."},
    {KEY(train.micro_batch), {1, 1 << 24}, "sequences",
     "Sequences of one forward and backward pass; changes memory and speed, not the batch.",
     "what fits 4096 tokens of a rank",
     [](Config& c) { c.train.micro_batch = default_micro_batch(c); }},
    {KEY(train.recompute), kAny, "",
     "What backward computes again instead of keeping: nothing, norms and activations, or whole "
     "blocks."},
    {KEY(train.offload_activations), kAny, "",
     "Keep what a GPU's layers leave for backward in pinned host memory meanwhile, for models "
     "that do not fit otherwise: the same bits, as fast where the copies take less time than the "
     "layers (docs/training_step.md). Without CUDA graphs. Nothing on the CPU."},
    {KEY(train.offload_optimizer), kAny, "",
     "Keep a GPU's master weights and moments in pinned host memory, for models that do not fit "
     "otherwise: the same bits, and each update waits for the link to carry them in and out at "
     "once (docs/training_step.md). Without CUDA graphs. Nothing on the CPU."},
    {KEY(train.attention), kAny, "",
     "Who computes attention on a GPU: cuDNN (bf16, heads of 64 or 128, no data.document_mask), "
     "or the own kernels; auto: cuDNN where it can."},
    {KEY(train.cuda_graphs), kAny, "",
     "Launch a GPU's steps as CUDA graphs, with the same bits; auto: models of up to 1e9 "
     "parameters, whose many short kernels a host is slow to launch. Nothing on the CPU."},
    {KEY(train.threads), {0, 4096}, "threads",
     "Threads that compute; 0: one for each processor that the process may use."},
    {KEY(train.seed), {0, 9e18}, "", "Of initial weights and rounding."},
    {KEY(train.init_from), kAny, "",
     "Directory (a run, a checkpoint, a Hugging Face model) whose weights the run starts from; "
     "empty: random weights."},
    {KEY(train.weight_hash_every_steps), kCount, "steps",
     "Between hashes of all weights, which are compared where several ranks hold the same; 0: "
     "only with checkpoints."},
    {KEY(train.most_skipped), {1, 1e6}, "steps",
     "Updates skipped in a row, for a loss or norm that is not finite, before the run stops."},
    {KEY(train.stall_seconds), kCount, "seconds",
     "Without progress on any rank, after which all of several ranks end, so that the run can be "
     "started again; 0: never."},
    // -------------------------------------------------------------------------------- optimizer
    {KEY(optimizer.learning_rate), {0, 100}, "", "Of AdamW, after warmup and before decay."},
    {KEY(optimizer.beta1), {0, 0.999999}, "", "Decay of the first moment."},
    {KEY(optimizer.beta2), {0, 0.999999}, "", "Decay of the second moment."},
    {KEY(optimizer.epsilon), {0, 1, true}, "", "Added to the root of the second moment."},
    {KEY(optimizer.weight_decay), {0, 100}, "",
     "Decoupled, times the learning rate; on matrices only."},
    {KEY(optimizer.clip_norm), {0, 1e9}, "",
     "Largest global norm of the gradient; 0: no clipping."},
    {KEY(optimizer.z_loss), {0, 1}, "",
     "Weight of the squared log of the softmax's denominator in the loss; PaLM used 1e-4."},
    // --------------------------------------------------------------------------------- schedule
    {KEY(schedule.kind), kAny, "",
     "How the learning rate falls: half a cosine, a straight line, never, or by 1 - sqrt after a "
     "long constant rate (wsd); train/schedule.h has the formulas."},
    {KEY(schedule.warmup_steps), kCount, "steps",
     "Steps over which the learning rate grows from zero.",
     "2% of train.steps",
     [](Config& c) { c.schedule.warmup_steps = c.train.steps / 50; }},
    {KEY(schedule.decay_fraction), kRatio, "",
     "Share of train.steps, at the end, over which the learning rate decays.",
     "cosine, linear: 1 (from the end of warmup); wsd: 0.2; constant: 0",
     [](Config& c) { c.schedule.decay_fraction = default_decay_fraction(c.schedule); }},
    {KEY(schedule.final_ratio), kRatio, "",
     "The learning rate that decay ends at, over optimizer.learning_rate.",
     "cosine: 0.1; linear, wsd: 0; constant: 1",
     [](Config& c) { c.schedule.final_ratio = default_final_ratio(c.schedule); }},
    // ------------------------------------------------------------------------------------- data
    {KEY(data.train), kAny, "",
     "Datasets to train on: directories, shard files, or patterns such as `fineweb_train_*.bin`; "
     "docs/formats.md lists what is read. `s3://` and `https://` addresses of directories with a "
     "dataset.json too (docs/streaming.md).",
     "required, without data.source"},
    {KEY(data.source), kAny, "",
     "A mixture, in place of data.train: a table `[[data.source]]` for each part, with `path` (as "
     "data.train) and `weight`, its share of the samples; or all with `epochs` in place of "
     "weights, which is a weight of epochs x samples (docs/data.md)."},
    {KEY(data.validation), kAny, "",
     "Datasets held out for evaluation, as data.train; none: no evaluation."},
    {KEY(data.rows), kAny, "",
     "What a sequence holds: the next tokens wherever documents end (windows); one document, the "
     "rest padded (examples); or whole documents, as many as fit, none of which attends to "
     "another (packed); auto: packed where the data have loss masks, else windows."},
    {KEY(data.document_mask), kAny, "", "No token attends to another document."},
    {KEY(data.shuffle_shards), kCount, "shards",
     "Shards whose windows are shuffled together, each so many in an order of shards that is "
     "another in each epoch: at most twice as many are read at a time; 0: all windows are "
     "shuffled together."},
    {KEY(data.seed), {0, 9e18}, "", "Of the order of the data.",
     "train.seed",
     [](Config& c) { c.data.seed = c.train.seed; }},
    {KEY(data.cache_directory), kAny, "",
     "Of each machine, on a fast disk of its own, where shards of `s3://` and `https://` datasets "
     "are kept; empty: `$XDG_CACHE_HOME/lockstep/shards`, else `~/.cache/lockstep/shards` "
     "(docs/streaming.md)."},
    {KEY(data.cache_bytes), kCount, "bytes",
     "That may lie there; what was not used for the longest time is removed; 0: half of what is "
     "free at the start."},
    // ------------------------------------------------------------------------------------- eval
    {KEY(eval.every_steps), kCount, "steps", "Between evaluations; 0: only at the end."},
    {KEY(eval.tokens), kCount, "tokens",
     "Read at each evaluation, always the same; 0: all there are."},
    // ------------------------------------------------------------------------------- checkpoint
    {KEY(checkpoint.every_steps), kCount, "steps", "Between checkpoints; 0: only at the end."},
    {KEY(checkpoint.keep_last), {1, 1e6}, "checkpoints",
     "Older ones are deleted once a newer one has been read back."},
    {KEY(checkpoint.keep_every_steps), kCount, "steps",
     "Those of multiples of so many steps stay; 0: none for that."},
    {KEY(checkpoint.keep_best), {0, 1e6}, "checkpoints",
     "Those of the lowest validation loss stay, among those saved behind an evaluation."},
    {KEY(checkpoint.local_directory), kAny, "",
     "On each machine's own fast disk, or in its memory: checkpoints are saved below it first, "
     "and copied to the run's directory beside training; empty: saved in the run's directory."},
    {KEY(checkpoint.partner_copies), kAny, "",
     "What each machine saves in checkpoint.local_directory is sent to the next machine's too, "
     "before it counts as saved: a machine that is lost then takes no step with it."},
    {KEY(checkpoint.archive_directory), kAny, "",
     "Checkpoints of multiples of checkpoint.keep_every_steps are copied below it, from the run's "
     "directory, in which they need not stay then; empty: none."},
    {KEY(checkpoint.files), kAny, "",
     "Who writes a file of a checkpoint: each rank, or the ranks of a machine one together, so "
     "that thousands of ranks make few files."},
    // -------------------------------------------------------------------------------------- log
    {KEY(log.every_steps), kPositive, "steps", "Between step lines; metrics.jsonl has every step."},
    {KEY(log.tensorboard), kAny, "", "Write TensorBoard event files."},
    {KEY(log.sample_every_steps), kCount, "steps", "Between samples of text; 0: none."},
    {KEY(log.sample_prompt), kAny, "", "What a sample continues."},
    {KEY(log.sample_tokens), {1, 1e6}, "tokens", "Length of a sample."},
    {KEY(log.prometheus_file), kAny, "",
     "Newest numbers in Prometheus's text format, for the textfile collector of a node exporter: "
     "a file *.prom in the run's directory, or anywhere by its absolute path; empty: none "
     "(docs/observability.md)."},
    {KEY(log.metrics_port), {0, 65535}, "",
     "TCP port at which rank 0 answers GET /metrics with the same numbers; 0: none."},
    {KEY(log.metrics_address), kAny, "",
     "Address that the port is at; anybody who reaches it can read the numbers. Empty: every "
     "address of rank 0's machine."},
    // ------------------------------------------------------------------------------------- plan
    {KEY(plan.cluster), kAny, "",
     "File that describes the machines of the run, as `lockstep preflight` writes one or "
     "`configs/clusters/` has them: `lockstep plan` is of them, and steps are compared with what "
     "is planned for them. Empty: the GPUs that are there, where they are known; processors have "
     "no plan without one."},
    {KEY(plan.compare_every_steps), kCount, "steps",
     "Between tables of plan and measured in the log, and looks for a rank that is slower than "
     "the others; 0: none."},
    // -------------------------------------------------------------------------------- precision
    {KEY(precision.compute), kAny, "",
     "Type of weights and activations in forward and backward; sums are fp32."},
    {KEY(precision.master_weights), kAny, "",
     "Keep fp32 weights beside bf16 ones; false: bf16 weights alone, updated with stochastic "
     "rounding."},
    {KEY(precision.fp8), kAny, "",
     "Products of the layers' matrices in fp8, beside precision.compute = \"bf16\": `tensor` "
     "scales each matrix as a whole, `block` each 128 x 128 of weights and 1 x 128 of all else "
     "(steadier, slower). Worth it from a width of about 2048 on."},
    {KEY(precision.fp8_gradients), kAny, "",
     "The fp8 format of gradients in backward: `e5m2` reaches further, `e4m3` is finer.",
     "block: e4m3; else e5m2",
     [](Config& c) {
       const bool is_block = c.precision.fp8 == Fp8Products::block;
       c.precision.fp8_gradients = is_block ? Config::Fp8Gradients::e4m3 : Config::Fp8Gradients::e5m2;
     }},
    {KEY(precision.moments), kAny, "", "Type of AdamW's moments; bf16 is rounded stochastically."},
};
// clang-format on

}  // namespace

std::span<const Option> options() {
  return kOptions;
}

}  // namespace lockstep
