// Whole steps of training: the parts that are named after models.
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "core/gpu.h"
#include "core/system/hardware.h"
#include "kernels/attention_cudnn.h"
#include "tests/bench/gpu/bench.h"
#include "train/step/memory.h"
#include "train/step/training.h"

namespace lockstep::bench {
namespace {

ModelConfig sized(Family family, std::int64_t layers, std::int64_t width, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t mlp, std::int64_t vocabulary) {
  ModelConfig m = family_defaults(family);
  m.layers = layers;
  m.width = width;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_size = width / heads;
  m.mlp_width = mlp;
  m.vocabulary = vocabulary;
  m.max_positions = 8192;
  return m;
}

ModelConfig with_tied_head(ModelConfig m) {
  m.tied_head = true;
  return m;
}

// Goals: what a step may leave the GPU idle, and what the memory of training may differ from what
// was measured.
constexpr double kIdle = 0.01, kOffMemory = 0.03;

struct StepCase {
  const char* name;
  ModelConfig model;
  std::int64_t length, sequences, micro_batches;
  bool bf16_state = false;  // weights by stochastic rounding, bf16 moments
  Fp8Matmuls fp8 = Fp8Matmuls::off;
  bool cuda_graphs = false, cudnn_attention = false, offload_optimizer = false;
};

TrainingConfig config_of(const StepCase& c) {
  TrainingConfig config{.model = c.model,
                        .compute = DType::bf16,
                        .stochastic_rounding = c.bf16_state,
                        .fp8 = c.fp8,
                        .moments = c.bf16_state ? DType::bf16 : DType::fp32,
                        .adamw = {},
                        .sequence_length = c.length,
                        .micro_batch_sequences = c.sequences,
                        .global_batch_sequences = c.sequences * c.micro_batches,
                        .cuda_graphs = c.cuda_graphs};
  config.cudnn_attention = c.cudnn_attention;
  config.offload_optimizer = c.offload_optimizer;
  return config;
}

// What goes from the GPU's free memory, stage by stage. Libraries and graphs take some of it beside
// what was measured.
class FreeMemory {
 public:
  FreeMemory() : begin_(gpu::free_bytes()), last_(begin_) {}
  void stage(const char* name, bool is_beside) {
    const auto now = gpu::free_bytes();
    text_ += str(text_.empty() ? "" : ", ", name, " ", mib(last_ - now));
    if (is_beside) beside_ += last_ - now;
    last_ = now;
  }
  void print(std::int64_t measured, Goals& goals) const {
    const auto taken = begin_ - last_;
    const auto off = [&](std::int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(measured) - 1;
    };
    const double off_training = off(taken - beside_);
    std::printf(
        "    MiB: %s; in all %s, measured %s, %+.2f%%, without libraries and graphs %+.2f%%%s\n",
        text_.c_str(), mib(taken).c_str(), mib(measured).c_str(), 100 * off(taken),
        100 * off_training, goals.mark(std::abs(off_training) <= kOffMemory));
  }
  static std::string mib(std::int64_t bytes) { return str(bytes / (1 << 20)); }

 private:
  std::int64_t begin_, last_, beside_ = 0;
  std::string text_;
};

struct StepTimes {
  std::vector<double> seconds, host;  // of the steps that are not timed by component, sorted
  double timed_seconds = 0;           // of the one that is
  StepTime components;                // of that
};

// Steps that come one behind the other: each is enqueued before the numbers of the one before are
// read. The first warms up, the second is captured where there are graphs, the last is timed by
// component.
StepTimes time_steps(Training& training, Stream& stream, const Batch& batch,
                     std::int64_t micro_batches) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kLast = Training::kTimedSteps, kFirst = kLast - 9;
  std::vector<Event> ends;
  std::vector<double> host;
  for (std::int64_t i = kFirst; i <= kLast; ++i) {
    const auto begin = Clock::now();
    training.begin_step(i, 1e-4);
    for (std::int64_t m = 0; m < micro_batches; ++m)
      training.micro_step(batch);
    training.finish_step();
    host.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    ends.push_back(stream.record_timed());
    if (i > kFirst) training.numbers(i - 1);
    if (i > kFirst) training.trace().take();  // of the step before
  }
  training.numbers(kLast);
  ends.back().synchronize();
  StepTimes t;
  t.components = training.trace().take();
  const auto count = ends.size();
  t.timed_seconds = ends[count - 1].seconds_since(ends[count - 2]);
  for (std::size_t i = 3; i < count - 1; ++i) {
    t.seconds.push_back(ends[i].seconds_since(ends[i - 1]));
    t.host.push_back(host[i]);
  }
  std::sort(t.seconds.begin(), t.seconds.end());
  std::sort(t.host.begin(), t.host.end());
  return t;
}

void print_times(const StepCase& c, const TrainingConfig& config, const StepTimes& t,
                 std::int64_t device_bytes, Goals& goals) {
  const auto tokens = static_cast<double>(config.step_tokens());
  const auto flops = flops_per_token(c.model, c.length);
  const auto gpu = gpu::properties(0).name;
  const double fp8 = c.fp8 == Fp8Matmuls::off ? 0 : flops.layer_products;
  const auto mfu = [&](double of) {
    return (of - fp8) / gpu_peak_flops(gpu, DType::bf16) +
           (fp8 > 0 ? fp8 / gpu_peak_flops(gpu, DType::fp8_e4m3) : 0);
  };
  const double middle = t.seconds[t.seconds.size() / 2];
  const double best = tokens / t.seconds.front(), median = tokens / middle;
  std::printf("%-28s %9.0f %9.0f %6.1f%% %6.1f%% %8.1f GiB |", c.name, best, median,
              100 * median * mfu(flops.causal), 100 * median * mfu(flops.square),
              static_cast<double>(device_bytes) / kGiB);
  const double traced = t.components.total() - t.components[Component::other];
  for (std::size_t i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    if (component != Component::other && t.components[component] > 0)
      std::printf(" %s %.1f%%", name(component), 100 * t.components[component] / t.timed_seconds);
  }
  const double idle = 1 - traced / middle;
  std::printf(", idle %.1f%%, %.1f%%, host %.2f%s\n", 100 * (1 - traced / t.timed_seconds),
              100 * idle, t.host[t.host.size() / 2] / middle, goals.mark(idle < kIdle));
}

// False where there is no such attention, or not enough memory.
bool step(const StepCase& c, Goals& goals) {
  const auto config = config_of(c);
  const auto bytes = measure_training(config, kGpu, 1);
  Stream stream(kGpu, "bench");
  FreeMemory free;
  if (c.cudnn_attention) {
    const auto& m = c.model;
    const auto why_not =
        prepare_cudnn_attention(stream, {c.sequences, c.length, m.heads, m.kv_heads, m.head_size});
    if (!why_not.empty()) {
      std::printf("%-28s %s\n", c.name, why_not.c_str());
      return false;
    }
    free.stage("cuDNN", true);
  }
  if (const auto host = available_memory_bytes(Device{}); bytes.pinned > host) {
    std::printf("%-28s needs %.1f GiB of the host's memory, %.1f are free\n", c.name,
                static_cast<double>(bytes.pinned) / kGiB, static_cast<double>(host) / kGiB);
    return false;
  }
  if (bytes.device > gpu::free_bytes()) {
    std::printf("%-28s needs %.1f GiB, %.1f are free\n", c.name,
                static_cast<double>(bytes.device) / kGiB,
                static_cast<double>(gpu::free_bytes()) / kGiB);
    return false;
  }
  Arenas arenas(kGpu, bytes);
  free.stage("arena", false);
  Training training(config, stream, arenas);
  training.choose_matmul_algorithms({});
  training.initialize();
  stream.synchronize();
  free.stage("cuBLASLt and kernels", true);
  Arena pinned(kGpu, Arena::Memory::pinned_host, 64 << 20);
  const auto host = [&](const std::function<std::int64_t(std::int64_t)>& value) {
    const Tensor t = pinned.allocate("batch", DType::int32, {c.sequences, c.length});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(value(i));
    return t;
  };
  const auto V = c.model.vocabulary;
  const Batch batch{.inputs = host([&](std::int64_t i) { return Bench::any_below(V, i); }),
                    .targets = host([&](std::int64_t i) { return Bench::any_below(V, i + 1); }),
                    .positions = host([&](std::int64_t i) { return i % c.length; }),
                    .document_start = {}};
  const auto times = time_steps(training, stream, batch, c.micro_batches);
  free.stage(c.cuda_graphs ? "steps and their graphs" : "steps", c.cuda_graphs);
  print_times(c, config, times, bytes.device, goals);
  LOCKSTEP_CHECK(arenas.peak().device == bytes.device, "the arena's peak is ", arenas.peak().device,
                 ", measured ", bytes.device);
  free.print(bytes.device, goals);
  std::fflush(stdout);
  return true;
}

struct NamedSteps {
  std::string_view part;
  std::vector<StepCase> cases;
};
const std::vector<NamedSteps>& all_models() {
  static const std::vector<NamedSteps> all{
      {"gpt2_124m",
       {{"GPT-2 124M, 4 x 1k", sized(Family::gpt2, 12, 768, 12, 12, 3072, 50257), 1024, 4, 4,
         false},
        {"GPT-2 124M, 64 x 1k", sized(Family::gpt2, 12, 768, 12, 12, 3072, 50257), 1024, 64, 4,
         false}}},
      {"gpt2_1.5b",
       {{"GPT-2 1.5B, 16 x 1k", sized(Family::gpt2, 48, 1600, 25, 25, 6400, 50257), 1024, 16, 4,
         false}}},
      {"llama_1b",
       {{"Llama 1B, 8 x 2k", sized(Family::llama3, 16, 2048, 32, 8, 8192, 128256), 2048, 8, 4,
         false}}},
      {"llama_3b_8k",
       {{"Llama 3B, 2 x 8k", with_tied_head(sized(Family::llama3, 28, 3072, 24, 8, 8192, 128256)),
         8192, 2, 4, false}}},
      {"llama_8b",
       {{"Llama 8B, 2 x 4k, bf16 state", sized(Family::llama3, 32, 4096, 32, 8, 14336, 128256),
         4096, 2, 4, true}}},
      {"llama_8b_8k",
       {{"Llama 8B, 1 x 8k, bf16 state", sized(Family::llama3, 32, 4096, 32, 8, 14336, 128256),
         8192, 1, 4, true}}},
      {"llama_8b_offloaded",
       {{.name = "Llama 8B, 2 x 4k, fp32 state on the host",
         .model = sized(Family::llama3, 32, 4096, 32, 8, 14336, 128256),
         .length = 4096,
         .sequences = 2,
         .micro_batches = 4,
         .cudnn_attention = true,
         .offload_optimizer = true}}},
      {"qwen2_1.5b",
       {{"Qwen 2.5 1.5B, 16 x 1k, bf16",
         with_tied_head(sized(Family::qwen2, 28, 1536, 12, 2, 8960, 151936)), 1024, 16, 4, true}}},
      {"qwen2_7b",
       {{"Qwen 2.5 7B, 8 x 1k, bf16", sized(Family::qwen2, 28, 3584, 28, 4, 18944, 151936), 1024, 8,
         4, true}}}};
  return all;
}

}  // namespace

std::vector<std::string_view> models() {
  std::vector<std::string_view> names;
  for (const auto& model : all_models())
    names.push_back(model.part);
  return names;
}

void steps(std::string_view model) {
  const auto p = gpu::properties(0);
  std::printf("\nbefore: %s MiB are taken, by the context and by others\n",
              FreeMemory::mib(p.memory_bytes - gpu::free_bytes()).c_str());
  std::printf("%-28s %9s %9s %7s %7s %12s\n", "step, bf16", "tokens/s", "median", "MFU", "square",
              "memory");
  const auto named = std::find_if(all_models().begin(), all_models().end(),
                                  [&](const NamedSteps& m) { return m.part == model; });
  Goals goals;
  for (StepCase c : named->cases) {
    step(c, goals);
    if (c.offload_optimizer) continue;
    c.name = "    attention by cuDNN";
    c.cudnn_attention = true;
    c.cudnn_attention = step(c, goals);
    c.name = "      and CUDA graphs";
    c.cuda_graphs = true;
    step(c, goals);
    c.cuda_graphs = false;
    if (c.model.width < 1600) continue;
    c.name = "      and fp8";
    c.fp8 = Fp8Matmuls::tensor;
    step(c, goals);
    if (c.model.width % 128 != 0) continue;
    c.name = "      and fp8, blocks";
    c.fp8 = Fp8Matmuls::block;
    step(c, goals);
  }
  goals.print();
}

}  // namespace lockstep::bench
