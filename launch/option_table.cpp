// The table of options. A default is the initialiser of the member in train/config.h, unless the
// option has a rule.
#include <algorithm>
#include <array>

#include "core/integer.h"
#include "launch/options.h"
#include "train/layout.h"

namespace lockstep {
namespace {

using Range = Option::Range;

constexpr std::array<std::string_view, 5> kFamilies{"gpt2", "llama3", "qwen2", "qwen3", "smollm3"};
constexpr std::array<std::string_view, 3> kAttentions{"auto", "cudnn", "own"};
constexpr std::array<std::string_view, 3> kFp8Products{"off", "tensor", "block"};
constexpr std::array<std::string_view, 2> kFp8Gradients{"e5m2", "e4m3"};
constexpr std::array<std::string_view, 2> kTypes{"fp32", "bf16"};  // the first of DType
constexpr std::array<std::string_view, 3> kComputeTypes{"fp32", "bf16",
                                                        "auto"};  // auto: config.cpp
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
Field field_of(Config::Decay& value) { return choice(value, kDecayNames); }
Field field_of(Fp8Matmuls& value) { return choice(value, kFp8Products); }
Field field_of(Config::Fp8Gradients& value) { return choice(value, kFp8Gradients); }
Field field_of(Sharding& value) { return choice(value, kShardingNames); }
Field field_of(Reduce& value) { return choice(value, kReduceNames); }
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
  const auto two_thirds = 8 * m.width / 3;  // 3 matrices with the size of 2 of inner width 4 width
  return (two_thirds + 63) / 64 * 64;
}

// Splits the sequences of a rank evenly into the fewest micro-batches of at most 4096 tokens.
std::int64_t default_micro_batch(const Config& c) {
  constexpr std::int64_t kTokens = 4096;
  const auto& t = c.train;
  const auto ranks = data_ranks(c.layout);
  const auto most = std::max<std::int64_t>(1, kTokens / t.sequence_length);
  const auto sequences =
      std::max<std::int64_t>(1, (t.batch_tokens / t.sequence_length + ranks - 1) / ranks);
  const auto micro_batches = (sequences + most - 1) / most;
  return (sequences + micro_batches - 1) / micro_batches;
}

double default_decay_fraction(const Config::Schedule& s) {
  return s.kind == Config::Decay::constant ? 0.0 : s.kind == Config::Decay::wsd ? 0.2 : 1.0;
}

double default_final_ratio(const Config::Schedule& s) {
  return s.kind == Config::Decay::constant ? 1.0 : s.kind == Config::Decay::cosine ? 0.1 : 0.0;
}

// The accessor of a member, and a key that equals the path of its member.
#define MEMBER(member) [](Config& c) -> Field { return field_of(c.member); }
#define KEY(member) #member, MEMBER(member)

// clang-format off
const Option kOptions[] = {
    // ------------------------------------------------------------------------------------ model
    {KEY(model.family), kAny, "", "Model family.", "required"},
    {KEY(model.layers), {1, kMostLayers}, "", "Number of transformer blocks.", "required"},
    {KEY(model.width), {1, kMostWidth}, "",
     "Hidden size: length of the vector of a token.", "required"},
    {KEY(model.heads), {1, kMostHeads}, "", "Number of query heads of attention.", "required"},
    {KEY(model.kv_heads), {1, kMostHeads}, "",
     "Number of key and value heads; each serves `heads / kv_heads` query heads.",
     "model.heads",
     [](Config& c) { c.model.kv_heads = c.model.heads; }},
    {KEY(model.head_size), {1, kMostHeadSize}, "", "Size of an attention head.",
     "model.width / model.heads",
     [](Config& c) { c.model.head_size = c.model.width / c.model.heads; }},
    {KEY(model.mlp_width), {1, kMostMlpWidth}, "", "Hidden size of the MLP.",
     "gpt2: 4 x model.width; others: 8/3 of it, rounded up to a multiple of 64",
     [](Config& c) { c.model.mlp_width = default_mlp_width(c.model); }},
    {KEY(model.vocabulary), {2, kMostVocabulary}, "tokens",
     "Number of token ids; 257 for text packed as bytes.",
     "gpt2: 50257; llama3, smollm3: 128256; qwen2, qwen3: 151936",
     [](Config& c) { c.model.vocabulary = default_vocabulary(c.model.family); }},
    {KEY(model.max_positions), {1, kMostPositions}, "tokens",
     "Maximum sequence length of the model.",
     "gpt2: 1024; llama3: 8192; qwen2: 32768; qwen3: 40960; smollm3: 65536",
     [](Config& c) { c.model.max_positions = default_max_positions(c.model.family); }},
    {KEY(model.norm_epsilon), {0, 1, true}, "",
     "Epsilon of norms, added to the variance (or mean square).",
     "gpt2, llama3: 1e-5; others: 1e-6"},
    {KEY(model.rope_theta), {1, 1e15, true}, "",
     "Base of the rotary position embedding (RoPE); gpt2 has none.",
     "llama3: 5e5; qwen2, qwen3: 1e6; smollm3: 5e6"},
    {KEY(model.no_rope_every), {0, 1000}, "layers",
     "Every n-th layer has no RoPE (NoPE); 0: all layers use RoPE.",
     "smollm3: 4; others: 0"},
    {"model.rope_scaling_factor", MEMBER(rope_scaling.factor), {1, 1e6}, "",
     "RoPE scaling as in Llama 3.1: factor that divides low frequencies; 1: no scaling."},
    {"model.rope_scaling_low", MEMBER(rope_scaling.low_factor), {0, 1e6, true}, "turns",
     "RoPE scaling: frequencies that make fewer turns than this over the original context are "
     "divided by the factor."},
    {"model.rope_scaling_high", MEMBER(rope_scaling.high_factor), {0, 1e6, true}, "turns",
     "RoPE scaling: frequencies that make more turns than this over the original context are "
     "unchanged."},
    {"model.rope_scaling_context", MEMBER(rope_scaling.original_context), {1, 1 << 24}, "tokens",
     "RoPE scaling: original context length."},
    {KEY(model.tied_head), kAny, "", "The output head shares the weights of the embedding.",
     "gpt2, smollm3: true; others: false"},
    {KEY(model.qkv_bias), kAny, "", "Bias in the query, key and value projections.",
     "gpt2, qwen2: true; others: false"},
    {KEY(model.out_bias), kAny, "", "Bias in the output projection of attention.",
     "model.qkv_bias; qwen2: false",
     [](Config& c) { c.model.out_bias = c.model.family != Family::qwen2 && c.model.qkv_bias; }},
    {KEY(model.mlp_bias), kAny, "",
     "Bias in the matrices of the MLP.", "gpt2: true; others: false"},
    {KEY(model.init_std), {0, 10}, "", "Standard deviation of initial weights."},
    // ----------------------------------------------------------------------------------- layout
    {KEY(layout.tensor), kRanks, "ranks",
     "Tensor-parallel size: ranks that share each matrix, and the tokens between matrices. They "
     "lie in one NVLink domain (unless --allow-tensor-across-nodes is given). Must divide "
     "model.heads, model.kv_heads and model.mlp_width."},
    {KEY(layout.shard), kRanks, "ranks",
     "FSDP size: ranks that share one copy of the model state; each reads its own data.",
     "number of ranks / (layout.replicate x layout.tensor)",
     [](Config& c) {
       const auto others = c.layout.replicate * c.layout.tensor;
       c.layout.shard = std::max<std::int64_t>(1, c.layout.ranks / others);
     }},
    {KEY(layout.replicate), kRanks, "ranks",
     "Number of data-parallel replicas, each on the ranks of the other axes; gradients are summed "
     "over replicas.",
     "if layout.shard is set, number of ranks / (layout.shard x layout.tensor); otherwise 1",
     // derived after layout.shard, which otherwise uses all ranks
     [](Config& c) {
       const auto others = c.layout.shard * c.layout.tensor;
       c.layout.replicate = std::max<std::int64_t>(1, c.layout.ranks / others);
     }},
    {KEY(layout.sharding), kAny, "",
     "State that the ranks of layout.shard share: nothing, the optimizer state, also gradients, "
     "or also weights (ZeRO stage 0 to 3; full is FSDP). weights: optimizer state and weights, but "
     "gradients are whole until the last micro-batch, which saves communication with gradient "
     "accumulation. More sharing saves memory; less saves communication (docs/parallelism.md)."},
    {KEY(layout.reduce), kAny, "",
     "Types in which gradients travel while they are summed over ranks; another value changes bits. "
     "fp32: the compute type inside an NVLink domain, fp32 elsewhere. bf16: bf16, except fp32 for "
     "sums of domains along layout.shard; needs precision.compute = \"bf16\". nccl: the communication "
     "library sums, in the compute type and in its own order (docs/parallelism.md)."},
    {KEY(layout.tensor_chunks), {1, 8}, "chunks",
     "Chunks in which tensor ranks gather and sum a micro-batch, so that the collectives of a chunk "
     "run beside the matmuls of another. Another value changes bits. layout.tensor x "
     "layout.tensor_chunks must divide the tokens of a micro-batch; fp8 needs a larger multiple "
     "(docs/parallelism.md)."},
    {KEY(layout.keep_gathered), {0, kMostLayers}, "blocks",
     "With layout.sharding = \"full\" or \"weights\": number of blocks whose weights stay "
     "all-gathered until the next update. Each needs more memory, and saves its all-gathers in the "
     "later forward and backward passes of a step."},
    // ------------------------------------------------------------------------------------ train
    {KEY(train.tokens), kCount, "tokens",
     "Length of the run in tokens, instead of train.steps; 0: train.steps."},
    {KEY(train.steps), kSteps, "steps", "Number of optimizer steps of the run.",
     "train.tokens / train.batch_tokens, rounded up; 1000 if train.tokens is 0",
     [](Config& c) {
       if (c.train.tokens > 0) c.train.steps = divide_up(c.train.tokens, c.train.batch_tokens);
     }},
    {KEY(train.sequence_length), {1, 1 << 24}, "tokens", "Length of a training sequence.",
     "model.max_positions, at most 1024",
     [](Config& c) {
       c.train.sequence_length = std::min<std::int64_t>(1024, c.model.max_positions);
     }},
    {KEY(train.batch_tokens), kBatchTokens, "tokens",
     "Global batch: tokens per step over all ranks; a multiple of train.sequence_length."},
    {KEY(train.micro_batch), {1, 1 << 24}, "sequences",
     "Micro-batch: sequences per rank in a forward and backward pass. Changes memory, speed and "
     "the number of gradient accumulation steps, but not the global batch.",
     "as many as fit in 4096 tokens",
     [](Config& c) { c.train.micro_batch = default_micro_batch(c); }},
    {KEY(train.recompute), kAny, "",
     "Activation checkpointing: what the backward pass recomputes instead of keeping: nothing, "
     "norms and activations, or whole blocks."},
    {KEY(train.offload_activations), kAny, "",
     "Keep the activations of GPU layers in pinned host memory until the backward pass, for "
     "models that do not fit otherwise. Results are bit-identical, and the speed is the same if "
     "the copies take less time than the layers (docs/training_step.md). Disables CUDA graphs. No "
     "effect on CPU."},
    {KEY(train.offload_optimizer), kAny, "",
     "Keep the master weights and moments of a GPU in pinned host memory, for models that do not "
     "fit otherwise. Results are bit-identical, but each update waits for transfers in both "
     "directions (docs/training_step.md). Disables CUDA graphs. No effect on CPU."},
    {KEY(train.attention), kAny, "",
     "Attention kernels on GPUs: cuDNN (bf16, heads of 64 or 128, no data.document_mask) or "
     "Lockstep's own kernels; auto: cuDNN if it supports the run."},
    {KEY(train.cuda_graphs), kAny, "",
     "Launch GPU steps as CUDA graphs, with bit-identical results; auto: for models of up to 1e9 "
     "parameters, whose many short kernels are slow to launch from the host. No effect on CPU."},
    {KEY(train.threads), {0, 4096}, "threads",
     "Number of compute threads; 0: one per CPU core available to the process."},
    {KEY(train.seed), {0, 9e18}, "", "Random seed of initial weights and stochastic rounding."},
    {KEY(train.init_from), kAny, "",
     "Model whose weights the run starts from: a run, a checkpoint, a Hugging Face directory or "
     "an llm.c model; empty: random weights."},
    {KEY(train.weight_hash_every_steps), kCount, "steps",
     "Interval between hashes of all weights, which are compared between ranks that hold the same "
     "weights; 0: only with checkpoints."},
    {KEY(train.most_skipped), {1, 1e6}, "steps",
     "Number of consecutive skipped updates at which the run stops. An update is skipped if the "
     "loss or the gradient norm is not finite, or if no token counts in the loss."},
    {KEY(train.stall_seconds), kCount, "seconds",
     "Abort a job of several ranks if a rank makes no progress for this long (10x as long before "
     "the first step), so that it can be restarted; 0: never."},
    // -------------------------------------------------------------------------------- optimizer
    {KEY(optimizer.learning_rate), {0, 100}, "",
     "Peak learning rate of AdamW, after warmup and before decay."},
    {KEY(optimizer.beta1), {0, 0.999999}, "", "Decay rate of the first moment."},
    {KEY(optimizer.beta2), {0, 0.999999}, "", "Decay rate of the second moment."},
    {KEY(optimizer.epsilon), {0, 1, true}, "",
     "Term added to the square root of the second moment."},
    {KEY(optimizer.weight_decay), {0, 100}, "",
     "Decoupled weight decay, multiplied by the learning rate; on all weights except norms "
     "and biases."},
    {KEY(optimizer.clip_norm), {0, 1e9}, "", "Maximum global gradient norm; 0: no clipping."},
    {KEY(optimizer.z_loss), {0, 1}, "",
     "Coefficient of the z-loss, the squared log of the softmax denominator; PaLM used 1e-4."},
    // --------------------------------------------------------------------------------- schedule
    {KEY(schedule.kind), kAny, "",
     "Decay of the learning rate: half a cosine, linear, none (constant), or 1 - sqrt after a "
     "long constant phase (wsd); formulas in train/schedule.h."},
    {KEY(schedule.warmup_tokens), kCount, "tokens",
     "Length of the warmup in tokens, instead of schedule.warmup_steps; 0: "
     "schedule.warmup_steps."},
    {KEY(schedule.warmup_steps), kCount, "steps",
     "Steps over which the learning rate rises from zero.",
     "schedule.warmup_tokens / train.batch_tokens, rounded up; 2% of train.steps if "
     "schedule.warmup_tokens is 0",
     [](Config& c) {
       const auto tokens = c.schedule.warmup_tokens;
       c.schedule.warmup_steps =
           tokens > 0 ? divide_up(tokens, c.train.batch_tokens) : c.train.steps / 50;
     }},
    {KEY(schedule.decay_steps), kCount, "steps",
     "Steps at the end of the run over which the learning rate decays, instead of "
     "schedule.decay_fraction; 0: schedule.decay_fraction."},
    {KEY(schedule.decay_fraction), kRatio, "",
     "Fraction of train.steps, at the end, over which the learning rate decays.",
     "cosine, linear: 1 (from the end of warmup); wsd: 0.2; constant: 0",
     [](Config& c) { c.schedule.decay_fraction = default_decay_fraction(c.schedule); }},
    {KEY(schedule.final_ratio), kRatio, "",
     "Final learning rate, divided by optimizer.learning_rate.",
     "cosine: 0.1; linear, wsd: 0; constant: 1",
     [](Config& c) { c.schedule.final_ratio = default_final_ratio(c.schedule); }},
    // ------------------------------------------------------------------------------------- data
    {KEY(data.train), kAny, "",
     "Training datasets: directories, shard files, or patterns such as `fineweb_train_*.bin`; "
     "docs/formats.md lists the formats. Also `s3://`, `https://` and `file:///` addresses of "
     "directories with a dataset.json, which are read through a local cache (docs/streaming.md).",
     "required unless data.source is set"},
    {KEY(data.source), kAny, "",
     "Mixture of datasets, which replaces data.train: one table `[[data.source]]` per part, with "
     "`path` (as data.train) and `weight`, its share of the samples. Or all tables have `epochs`, "
     "which is a weight of epochs x samples (docs/data.md)."},
    {KEY(data.validation), kAny, "",
     "Held-out datasets for evaluation, in the forms of data.train; empty: no evaluation."},
    {KEY(data.rows), kAny, "",
     "Contents of a sequence: consecutive tokens across documents (windows); one document, padded "
     "(examples); or as many whole documents as fit, without attention between them (packed). "
     "auto: packed if the data have loss masks, otherwise windows."},
    {KEY(data.document_mask), kAny, "", "Mask attention between documents."},
    {KEY(data.shuffle_shards), kCount, "shards",
     "Number of shards whose windows are shuffled together; the order of shards differs in each "
     "epoch. At most twice as many shards are read at a time. 0: all windows are shuffled "
     "together."},
    {KEY(data.seed), {0, 9e18}, "", "Random seed of the data order.",
     "train.seed",
     [](Config& c) { c.data.seed = c.train.seed; }},
    {KEY(data.cache_directory), kAny, "",
     "Directory on a fast local disk of each host that caches shards of `s3://`, `https://` and "
     "`file:///` datasets; empty: `$XDG_CACHE_HOME/lockstep/shards`, or else `~/.cache/lockstep/shards` "
     "(docs/streaming.md)."},
    {KEY(data.cache_bytes), kCount, "bytes",
     "Maximum size of the cache; the least recently used shards are removed first. 0: half of the "
     "space that is free at the start."},
    // ------------------------------------------------------------------------------------- eval
    {KEY(eval.every_steps), kCount, "steps", "Interval between evaluations; 0: only at the end."},
    {KEY(eval.tokens), kCount, "tokens",
     "Number of tokens per evaluation, always the same tokens; 0: all."},
    // ------------------------------------------------------------------------------- checkpoint
    {KEY(checkpoint.every_steps), kCount, "steps",
     "Interval between checkpoints; 0: only at the end."},
    {KEY(checkpoint.every_seconds), {0, 1e6}, "s",
     "Interval between checkpoints that stay in checkpoint.local_directory. If that directory is in "
     "memory, 30 is right for most runs; a disk wears out. 0: only checkpoint.every_steps."},
    {KEY(checkpoint.most_failed), {1, 1e6}, "saves",
     "Number of consecutive failed saves at which the run stops with exit code 74. A restart "
     "repeats all steps since the newest checkpoint."},
    {KEY(checkpoint.keep_last), {1, 1e6}, "checkpoints",
     "Number of newest checkpoints to keep; older ones are deleted after a newer one has been "
     "read back."},
    {KEY(checkpoint.keep_every_steps), kCount, "steps",
     "Keep checkpoints at multiples of this number of steps; 0: disabled."},
    {KEY(checkpoint.keep_best), {0, 1e6}, "checkpoints",
     "Number of checkpoints with the lowest validation loss to keep, among those saved after an "
     "evaluation."},
    {KEY(checkpoint.local_directory), kAny, "",
     "Directory on a fast local disk, or in the memory, of each host: checkpoints are saved there "
     "first, and copied to the run directory in the background. Empty: checkpoints are saved in "
     "the run directory."},
    {KEY(checkpoint.partner_copies), kAny, "",
     "Send each local checkpoint also to another host before it counts as saved. Losing a host "
     "then loses no steps."},
    {KEY(checkpoint.archive_directory), kAny, "",
     "Directory to which checkpoints at multiples of checkpoint.keep_every_steps are copied from "
     "the run directory, which then need not keep them; empty: no archive."},
    {KEY(checkpoint.files), kAny, "",
     "Write one checkpoint file per rank, or per node, so that thousands of ranks make few files."},
    // -------------------------------------------------------------------------------------- log
    {KEY(log.every_steps), kPositive, "steps",
     "Interval between step lines; metrics.jsonl has every step."},
    {KEY(log.tensorboard), kAny, "", "Write TensorBoard event files."},
    {KEY(log.sample_every_steps), kCount, "steps", "Interval between text samples; 0: none."},
    {KEY(log.sample_prompt), kAny, "", "Prompt of text samples."},
    {KEY(log.sample_tokens), {1, 1e6}, "tokens", "Length of a text sample."},
    {KEY(log.prometheus_file), kAny, "",
     "File with the latest metrics in the Prometheus text format, for the textfile collector of "
     "node exporter: a name *.prom in the run directory, or an absolute path; empty: none "
     "(docs/observability.md)."},
    {KEY(log.metrics_port), {0, 65535}, "",
     "TCP port on which rank 0 serves the same metrics at GET /metrics; 0: none."},
    {KEY(log.metrics_address), kAny, "",
     "Address that the port is bound to; everyone who reaches it can read the metrics. Empty: all "
     "addresses of the host of rank 0."},
    // ------------------------------------------------------------------------------------- plan
    {KEY(plan.cluster), kAny, "",
     "Cluster file that describes the hosts of the run: the cluster.json of `lockstep preflight`, "
     "or a file of `configs/clusters/`. `lockstep plan` uses it, and `lockstep train` compares "
     "measured steps with its plan. Empty: the GPUs of the hosts, if they are known; CPUs have no "
     "plan without a file."},
    {KEY(plan.compare_every_steps), kCount, "steps",
     "Interval between tables of plan and measurement in the log, and between checks for ranks "
     "that are slower than the others (stragglers); 0: never."},
    // -------------------------------------------------------------------------------- precision
    {"precision.compute", [](Config& c) -> Field { return choice(c.precision.compute, kComputeTypes); },
     kAny, "",
     "Type of weights and activations in forward and backward; sums are fp32. auto: bf16 if all "
     "ranks compute it fast (GPUs of compute capability 8.0 or higher, CPUs with avx512_bf16), "
     "otherwise fp32; a resumed run keeps its type."},
    {KEY(precision.master_weights), kAny, "",
     "Keep fp32 master weights beside bf16 weights; false: bf16 weights alone, updated with "
     "stochastic rounding."},
    {KEY(precision.fp8), kAny, "",
     "fp8 matmuls in the layers, with precision.compute = \"bf16\": `tensor` has one scale per "
     "matrix, `block` one per 128 x 128 weights and per 1 x 128 of other values (more stable, "
     "slower). Useful from a width of about 2048 on."},
    {KEY(precision.fp8_gradients), kAny, "",
     "fp8 format of gradients in backward: `e5m2` has more range, `e4m3` more precision.",
     "block: e4m3; else e5m2",
     [](Config& c) {
       const bool is_block = c.precision.fp8 == Fp8Matmuls::block;
       c.precision.fp8_gradients = is_block ? Config::Fp8Gradients::e4m3 : Config::Fp8Gradients::e5m2;
     }},
    {KEY(precision.moments), kAny, "",
     "Type of the AdamW moments; bf16 is rounded stochastically."},
};
// clang-format on

}  // namespace

std::span<const Option> options() {
  return kOptions;
}

}  // namespace lockstep
