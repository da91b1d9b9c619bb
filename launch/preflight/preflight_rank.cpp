#include "launch/preflight/preflight_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/arena.h"
#include "core/gpu.h"
#include "core/hash.h"
#include "core/progress.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Tolerances kOfGpus{.products = 0.05,
                             .clocks = 0.1,
                             .memory = 0.05,
                             .copies = 0.1,
                             .links = 0.1,
                             .latency = 1.0,
                             .storage = 0.5,
                             .steps = 0.05};
constexpr Tolerances kOfProcessors{.products = 0.25,
                                   .clocks = 0,
                                   .memory = 0.4,
                                   .copies = 0.4,
                                   .links = 0.5,
                                   .latency = 3.0,
                                   .storage = 0.5,
                                   .steps = 0.25};

}  // namespace

const Tolerances& tolerances_of(Device::Kind kind) {
  return kind == Device::Kind::cuda ? kOfGpus : kOfProcessors;
}

void PreflightRank::meet() {
  world.exchange("");
  made_progress();
}

double PreflightRank::add(Finding finding, const std::function<void(Finding&)>& measure) {
  meet();
  try {
    measure(finding);
  } catch (const ConfigError& error) {
    finding.failure = error.what();
    finding.is_wrong_configuration = true;
  } catch (const Error& error) {
    finding.failure = error.what();
  }
  const bool is_found = finding.failure.empty() && !std::isnan(finding.value);
  const double value = is_found ? finding.value : 0;
  keep(std::move(finding));
  return value;
}

void PreflightRank::add_of_all(Finding finding) {
  if (world.rank() != 0) return;
  std::vector<int> everybody(static_cast<std::size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  finding.whose = hosts_in_words(topology, everybody);
  keep(std::move(finding));
}

void PreflightRank::keep(Finding finding) {
  const auto ranks = std::ssize(host_ranks(topology, world.rank()));
  const int threads = compute.threads();
  const auto each =
      on_gpus() ? "" : str(", ", threads, threads == 1 ? " thread each" : " threads each");
  finding.of = str(ranks, ranks == 1 ? " rank" : " ranks", " on the host", each,
                   finding.of.empty() ? "" : ", ", finding.of);
  findings.push_back(std::move(finding));
}

void require_answer(const std::string& failure) {
  if (!failure.empty()) throw TransientError(str("NVML: ", failure));
}

std::vector<double> numbers_of_ranks(World& world, double mine) {
  std::vector<double> all;
  for (const auto& said : world.exchange(Json(mine).dump()))
    all.push_back(Json::parse(said, "a rank's figure").as_double());
  return all;
}

double largest_of_ranks(World& world, double mine) {
  return std::ranges::max(numbers_of_ranks(world, mine));
}

double median_of_ranks(World& world, double mine) {
  auto all = numbers_of_ranks(world, mine);
  std::ranges::sort(all);
  return all[all.size() / 2];
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int calls_in_window(double seconds_of_one, int least) {
  constexpr double kWindow = 0.3, kMost = 1e5;
  return static_cast<int>(std::clamp(kWindow / seconds_of_one, static_cast<double>(least), kMost));
}

double mean_seconds(Stream& stream, FunctionRef<void()> work, FunctionRef<void()> at_end) {
  constexpr int kFewest = 3;
  constexpr double kSlow = 2;  // seconds; a single call that takes longer is enough
  const auto one = [&] {
    const auto begin = Clock::now();
    work();
    stream.synchronize();
    return seconds_since(begin);
  };
  if (const double first = one(); first > kSlow) {
    at_end();
    return first;
  }
  const int calls = calls_in_window(one(), kFewest);
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i)
    work();
  at_end();
  stream.synchronize();
  return seconds_since(begin) / calls;
}

std::int64_t bytes_within(const Stream& stream, std::int64_t bytes) {
  if (!stream.is_cuda()) return bytes;
  constexpr std::int64_t kPart = 64;
  const auto memory = gpu::properties(stream.device().index).memory_bytes;
  return std::min(bytes, memory / kPart / kMiB * kMiB);
}

std::span<std::byte> bytes_in(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.bytes())};
}

void fill_words(std::span<std::byte> bytes, std::uint64_t seed) {
  auto* words = reinterpret_cast<std::uint64_t*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof *words; ++i)
    words[i] = seed = seed * 6364136223846793005u + 1442695040888963407u;
}

std::string hash_of(Stream& stream, ConstTensor tensor) {
  if (!stream.is_cuda())
    return hash_hex(std::span(tensor.data, static_cast<std::size_t>(tensor.bytes())));
  Arena pinned(stream.device(), Arena::Memory::pinned_host, tensor.bytes());
  const Tensor copy = pinned.allocate("copy", tensor.dtype, tensor.shape);
  stream.copy(copy, tensor);
  stream.synchronize();
  return hash_hex(bytes_in(copy));
}

}  // namespace lockstep
