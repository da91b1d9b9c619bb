#include "train/preflight/preflight_checks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <numeric>
#include <optional>
#include <unistd.h>

#include "core/file.h"
#include "core/gpu.h"
#include "core/hash.h"
#include "core/machine.h"
#include "core/progress.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "train/plan/prices.h"
#include "train/plan/step_program.h"
#include "train/preflight/preflight.h"
#include "train/run_parts.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

// How much worse than others, and than the last time, is too much. GPUs are alike and alone;
// processors of clouds share caches, clocks and networks with strangers.
struct Tolerances {
  double products, memory, copies, links, latency, storage;
};
constexpr Tolerances kOfGpus{0.05, 0.05, 0.1, 0.1, 1.0, 0.5};
constexpr Tolerances kOfProcessors{0.25, 0.4, 0.4, 0.5, 3.0, 0.5};
const Tolerances& tolerances(const PreflightRank& rank) {
  return rank.on_gpus() ? kOfGpus : kOfProcessors;
}

// Of what a GPU that is known should do, as healthy H100s do: 2.8 of 3.35 TB/s, 52 of 55 GB/s, 350
// of 370 GB/s; of a product's price.
constexpr double kMemoryLimit = 0.83, kLinkLimit = 0.94, kProductLimit = 0.9;
constexpr double kShareLimit = 0.9;  // of the time that a processor works for the rank that has it

constexpr double kWindow = 0.3;            // seconds of a measurement
constexpr std::int64_t kReference = 1024;  // of a product on processors
constexpr std::int64_t kGpuReference = 8192;
constexpr std::size_t kMostShapes = 4;
constexpr std::int64_t kMiB = 1 << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// All ranks go on together.
void meet(World& world) {
  world.exchange("");
  made_progress();
}

// Seconds of one call, the mean of as many as fit into the window; at_end(): while they are done.
template <class Work>
double mean_seconds(Stream& stream, const Work& work, const std::function<void()>& at_end = {}) {
  work();
  stream.synchronize();
  auto begin = Clock::now();
  work();
  stream.synchronize();
  const int calls = static_cast<int>(std::clamp(kWindow / seconds_since(begin), 3.0, 1e5));
  begin = Clock::now();
  for (int i = 0; i < calls; ++i)
    work();
  if (at_end) at_end();
  stream.synchronize();
  return seconds_since(begin) / calls;
}

std::string hash_of(Stream& stream, ConstTensor tensor) {
  if (!stream.is_cuda())
    return hash_hex(std::span(tensor.data, static_cast<std::size_t>(tensor.bytes())));
  Arena pinned(stream.device(), Arena::Memory::pinned_host, tensor.bytes());
  const Tensor copy = pinned.allocate("copy", tensor.dtype, tensor.shape);
  stream.copy(copy, tensor);
  stream.synchronize();
  return hash_hex(std::span(copy.data, static_cast<std::size_t>(copy.bytes())));
}

// A product and its tensors, of numbers that are random and the same on all ranks.
class Product {
 public:
  Product(Stream& stream, const ProductShape& shape)
      : stream_(stream), arena_(stream.device(), Arena::Memory::device, bytes(stream, shape)) {
    allocate(arena_, shape);
    random_normal(stream, x_, {.seed = 1, .purpose = 1});
    random_normal(stream, weight_, {.seed = 1, .purpose = 2});
    stream.synchronize();
  }
  void make() { matmul_forward(stream_, arena_, y_, x_, weight_); }
  ConstTensor result() const { return y_; }

 private:
  explicit Product(Stream& measuring)
      : stream_(measuring), arena_(Arena::measure(measuring.device())) {}
  static std::int64_t bytes(const Stream& stream, const ProductShape& shape) {
    Stream measuring(stream.device(), "measure", Stream::Mode::measuring, stream.threads());
    Product product(measuring);
    product.allocate(product.arena_, shape);
    product.make();
    return product.arena_.peak_bytes();
  }
  void allocate(Arena& arena, const ProductShape& s) {
    x_ = arena.allocate("x", s.dtype, {s.M, s.K});
    weight_ = arena.allocate("weight", s.dtype, {s.N, s.K});
    y_ = arena.allocate("y", s.dtype, {s.M, s.N});
  }

  Stream& stream_;
  Arena arena_;
  Tensor x_, weight_, y_;
};

double flops_of(const ProductShape& s) {
  return 2.0 * static_cast<double>(s.M) * static_cast<double>(s.N) * static_cast<double>(s.K);
}

std::string in_words(const ProductShape& s) {
  return str(s.M, " x ", s.N, " x ", s.K, " ", name(s.dtype));
}

double price_of(const ProductShape& s, const Hardware& hardware) {
  const auto call = product_call(static_cast<double>(s.M), static_cast<double>(s.N),
                                 static_cast<double>(s.K), arithmetic_of(s.dtype));
  return Prices(hardware).product_seconds(call);
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The ranks on other hosts that this one is paired with, one a round; nothing: it waits. Hosts meet
// as teams of a tournament do, so that in three rounds each has met up to three others.
std::vector<std::optional<int>> partners(const Topology& topology, int rank) {
  constexpr std::size_t kMostRounds = 3;
  std::vector<std::vector<int>> hosts;
  std::size_t mine = 0, place = 0;
  for (int r = 0; r < std::ssize(topology.places); ++r) {
    auto ranks = machine_ranks(topology, r);
    if (ranks.front() == r) hosts.push_back(ranks);
  }
  for (std::size_t h = 0; h < hosts.size(); ++h)
    for (std::size_t i = 0; i < hosts[h].size(); ++i)
      if (hosts[h][i] == rank) mine = h, place = i;
  if (hosts.size() == 1) return {};
  const std::size_t teams = hosts.size() + hosts.size() % 2;  // an odd one out plays with nobody
  std::vector<std::optional<int>> all;
  for (std::size_t round = 0; round < std::min(teams - 1, kMostRounds); ++round) {
    // The last one stays, others turn: h meets the one with which it sums to `round`.
    const auto turn = teams - 1;
    std::size_t other = (round + turn - mine % turn) % turn;
    if (mine == turn) {
      other = 0;
      while (2 * other % turn != round)
        ++other;
    } else if (other == mine) {
      other = turn;
    }
    const bool is_there = other < hosts.size() && place < hosts[other].size();
    all.push_back(is_there ? std::optional(hosts[other][place]) : std::nullopt);
  }
  return all;
}

// Bytes a second from rank `root` of the pair to the other, as that one sees it; 0: of the root.
double one_way(Communicator& pair, int root, Tensor buffer, Stream& stream) {
  constexpr int kCalls = 4;
  pair.barrier(stream);
  stream.synchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i)
    pair.broadcast(buffer, root, stream);
  stream.synchronize();
  const double seconds = seconds_since(begin);
  return pair.rank() == root ? 0.0 : kCalls * static_cast<double>(buffer.bytes()) / seconds;
}

// The median of what the ranks say.
double median_of_ranks(World& world, double mine) {
  std::vector<double> all;
  for (const auto& said : world.exchange(Json(mine).dump()))
    all.push_back(Json::parse(said, "a rank's figure").as_double());
  std::ranges::sort(all);
  return all[all.size() / 2];
}

// The first group of several ranks that moves parameters beside compute.
Communicator* group_beside(Comms& comms) {
  for (Communicator* group :
       {comms.gathers.get(), comms.shard.inside.get(), comms.shard.across.get(),
        comms.replicate.inside.get(), comms.replicate.across.get()})
    if (group->size() > 1) return group;
  return nullptr;
}

// A file that goes with it.
struct Scratch {
  fs::path path;
  ~Scratch() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

void PreflightRank::add(Finding finding, const std::function<void(Finding&)>& measure) {
  meet(world);
  try {
    measure(finding);
  } catch (const ConfigError& error) {
    finding.failure = error.what();
    finding.is_wrong_configuration = true;
  } catch (const Error& error) {
    finding.failure = error.what();
  }
  findings.push_back(std::move(finding));
}

std::vector<ProductShape> product_shapes(const Config* config, const Stream& compute,
                                         const Topology& topology, int rank) {
  const auto side = compute.is_cuda() ? kGpuReference : kReference;
  std::vector<ProductShape> shapes{{side, side, side, DType::fp32},
                                   {side, side, side, DType::bf16}};
  if (config == nullptr) return shapes;
  if (compute.is_cuda())
    shapes.clear();  // the model's are enough: train/plan/hardware.h knows others
  const auto program =
      record_step(training_config(*config), compute.device(), compute.threads(), rank, &topology);
  std::map<ProductShape, double> flops;
  for (const auto& entry : program.log->entries())
    if (entry.what == OpLog::What::op && entry.op.kind == Op::Kind::product) {
      const auto& [M, N, K, none] = entry.op.sizes;
      flops[{M, N, K, config->precision.compute}] += entry.op.flops;
    }
  std::vector<std::pair<double, ProductShape>> ranked;
  for (const auto& [shape, sum] : flops)
    ranked.emplace_back(sum, shape);
  std::ranges::sort(ranked, std::greater<>());
  ranked.resize(std::min(ranked.size(), kMostShapes));
  for (const auto& [sum, shape] : ranked)
    shapes.push_back(shape);
  return shapes;
}

ProductRates check_products(PreflightRank& rank, std::span<const ProductShape> shapes,
                            const GpuMonitor* monitor) {
  ProductRates best;
  GpuReading reading;
  double busy = 0, passed = 0;  // seconds of products: of processors, and of the clock
  for (const ProductShape& shape : shapes) {
    Finding finding{.check = str("product ", in_words(shape)),
                    .unit = Unit::flops,
                    .tolerance = tolerances(rank).products};
    if (rank.known != nullptr && shape.dtype == DType::bf16)
      finding.limit = kProductLimit * flops_of(shape) / price_of(shape, *rank.known);
    rank.add(finding, [&](Finding& f) {
      Product product(rank.compute, shape);
      product.make();
      f.bits = hash_of(rank.compute, product.result());
      const auto begin = Clock::now();
      const double busy_before = processor_seconds();
      const double seconds = mean_seconds(
          rank.compute, [&] { product.make(); },
          [&] {
            if (monitor != nullptr) reading = monitor->read();
          });
      busy += processor_seconds() - busy_before;
      passed += seconds_since(begin);
      f.value = flops_of(shape) / seconds;
      if (hash_of(rank.compute, product.result()) != f.bits)
        throw TransientError("the same product gave other bits the second time");
      double& rate = shape.dtype == DType::fp32 ? best.fp32 : best.bf16;
      rate = std::max(rate, f.value);
    });
  }
  if (!rank.on_gpus()) {
    rank.add(
        {.check = "share of its processors' time", .unit = Unit::share, .limit = kShareLimit},
        [&](Finding& f) { f.value = std::min(busy / (passed * rank.compute.threads()), 1.0); });
    return best;
  }
  rank.add({.check = "clock under load", .unit = Unit::share, .tolerance = 0.1}, [&](Finding& f) {
    if (monitor == nullptr || !monitor->is_there())
      throw TransientError("NVML does not know the GPU (is libnvidia-ml.so.1 there?)");
    const auto most = monitor->health().most_clock_mhz;
    if (most && !std::isnan(reading.clock_mhz)) f.value = reading.clock_mhz / *most;
    if (!std::isnan(reading.clock_mhz)) f.detail = str(reading.clock_mhz, " MHz");
  });
  rank.add({.check = "causes that hold clocks down", .limit = 0}, [&](Finding& f) {
    if (std::isnan(reading.clock_mhz)) return;
    f.value = static_cast<double>(reading.slowed_by.size());
    for (const auto& cause : reading.slowed_by)
      f.detail += str(f.detail.empty() ? "" : ", ", cause);
  });
  return best;
}

namespace {

// So many bytes, or a small part of a small GPU's memory.
std::int64_t of_memory(const PreflightRank& rank, std::int64_t bytes) {
  if (!rank.on_gpus()) return bytes;
  constexpr std::int64_t kPart = 64;
  const auto memory = gpu::properties(rank.compute.device().index).memory_bytes;
  return std::min(bytes, memory / kPart / kMiB * kMiB);
}

// Words that no storage can compress and no copy can get right by chance.
void fill_words(std::span<std::byte> bytes, std::uint64_t seed) {
  auto* words = reinterpret_cast<std::uint64_t*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / sizeof *words; ++i)
    words[i] = seed = seed * 6364136223846793005u + 1442695040888963407u;
}
std::span<std::byte> bytes_in(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.bytes())};
}

}  // namespace

double check_memory(PreflightRank& rank) {
  const std::int64_t bytes = of_memory(rank, (rank.on_gpus() ? 1024 : 64) * kMiB);
  double rate = 0;
  Finding finding{.check = "memory, read and written",
                  .unit = Unit::bytes_per_second,
                  .tolerance = tolerances(rank).memory};
  if (rank.known != nullptr) finding.limit = kMemoryLimit * rank.known->hbm_bytes_per_second;
  rank.add(finding, [&](Finding& f) {
    Arena arena(rank.compute.device(), Arena::Memory::device, 2 * bytes + kMiB);
    Arena pinned(rank.compute.device(), Arena::Memory::pinned_host, bytes);
    const Tensor from = arena.allocate("from", DType::fp32, {bytes / 4});
    const Tensor to = arena.allocate("to", DType::fp32, {bytes / 4});
    const Tensor words = pinned.allocate("words", DType::fp32, {bytes / 4});
    fill_words(bytes_in(words), 1);
    rank.compute.copy(from, words);
    rate = f.value =
        2.0 * static_cast<double>(bytes) / mean_seconds(rank.compute, [&] {
          // A copy by a CPU's stream has one thread.
          rank.on_gpus() ? rank.compute.copy(to, from) : convert(rank.compute, to, from);
        });
    if (hash_of(rank.compute, to) != hash_hex(bytes_in(words)))
      throw TransientError("a copy has other bits");
  });
  return rate;
}

double check_host_copies(PreflightRank& rank) {
  const std::int64_t bytes = of_memory(rank, (rank.on_gpus() ? 256 : 64) * kMiB);
  double slower = 0;
  for (const bool is_back : {false, true}) {
    Finding finding{.check = is_back ? "copy to the host" : "copy from the host",
                    .unit = Unit::bytes_per_second,
                    .tolerance = tolerances(rank).copies};
    if (rank.known != nullptr) finding.limit = kLinkLimit * rank.known->host_bytes_per_second;
    rank.add(finding, [&](Finding& f) {
      Arena arena(rank.compute.device(), Arena::Memory::device, bytes);
      Arena pinned(rank.compute.device(), Arena::Memory::pinned_host, bytes);
      const Tensor on_device = arena.allocate("on the device", DType::fp32, {bytes / 4});
      const Tensor on_host = pinned.allocate("on the host", DType::fp32, {bytes / 4});
      fill_words(bytes_in(on_host), 2);
      rank.compute.copy(on_device, on_host);
      f.value =
          static_cast<double>(bytes) / mean_seconds(rank.compute, [&] {
            is_back ? rank.compute.copy(on_host, on_device) : rank.compute.copy(on_device, on_host);
          });
      slower = slower > 0 ? std::min(slower, f.value) : f.value;
    });
  }
  return slower;
}

double check_hosts(PreflightRank& rank) {
  const int mine = rank.world.rank();
  const auto all = partners(rank.topology, mine);
  if (all.empty()) return 0;
  const std::int64_t bytes = (rank.on_gpus() ? 64 : 8) * kMiB;
  Arena arena(rank.compute.device(), Arena::Memory::device, bytes);
  const Tensor buffer = arena.allocate("buffer", DType::fp32, {bytes / 4});
  fill(rank.compute, buffer, 1.0f);
  Json received = Json::Array{};  // from whom, how fast
  for (std::size_t round = 0; round < all.size(); ++round) {
    const auto other = all[round];
    std::vector<int> ranks{mine};
    if (other) ranks.push_back(*other);
    std::ranges::sort(ranks);
    const auto pair = rank.world.connect({str("pair ", round), ranks, Carries::parameters});
    meet(rank.world);
    for (int root = 0; other && root < 2; ++root) {
      const double rate = one_way(*pair, root, buffer, rank.compute);
      if (rate > 0) received.push(Json::Array{*other, rate});
    }
  }
  // Each rank's best, so that a host is not blamed for a slow partner while it has others.
  double sent = 0, most_received = 0;
  int partners_of_mine = 0;
  std::string whom;
  const auto said = rank.world.exchange(received.dump());
  for (std::size_t r = 0; r < said.size(); ++r) {
    const Json heard = Json::parse(said[r], str("what rank ", r, " received"));
    for (const Json& one : heard.as_array()) {
      const double rate = one.as_array()[1].as_double();
      if (static_cast<int>(r) == mine) most_received = std::max(most_received, rate);
      if (one.as_array()[0].as_integer() != mine) continue;
      sent = std::max(sent, rate);
      ++partners_of_mine;
      whom = rank.topology.places[r].host;
    }
  }
  if (partners_of_mine == 0) return 0;
  const auto who = who_is_who(rank.topology)[static_cast<std::size_t>(mine)].words;
  Finding finding{.check = "sends to other hosts",
                  .unit = Unit::bytes_per_second,
                  .value = sent,
                  .tolerance = tolerances(rank).links};
  if (rank.known != nullptr) finding.limit = kLinkLimit * 0.9 * rank.known->nic_bytes_per_second;
  if (partners_of_mine == 1) finding.whose = str(who, " (to host ", whom, ")");
  rank.findings.push_back(finding);
  if (partners_of_mine > 1) {
    finding.check = "receives from other hosts";
    finding.value = most_received;
    rank.findings.push_back(finding);
  }
  return sent;
}

LinkTimes check_collectives(PreflightRank& rank, double slowest) {
  if (rank.world.size() == 1) return {};
  constexpr double kLeast = 20e6;  // bytes a second: below, sweeps take minutes
  std::vector<int> everybody(static_cast<std::size_t>(rank.world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto whose = hosts_in_words(rank.topology, everybody);
  if (slowest > 0 && slowest < kLeast) {
    rank.findings.push_back(
        {.check = "collectives",
         .whose = whose,
         .failure = str("hosts are joined too slowly (", in_words(slowest, Unit::bytes_per_second),
                        ") to measure them in time")});
    return {};
  }
  meet(rank.world);
  auto links = LinkTimes::measure(rank.comms, rank.compute, &rank.topology);
  if (rank.world.rank() != 0) return links;  // its are of all
  for (const LinkTime& link : links.links()) {
    const auto what = str(name(link.kind), " of ", link.ranks, " ranks",
                          link.domains > 1 ? str(" in ", link.domains, " domains") : "",
                          link.beside ? ", beside compute" : "");
    Finding bandwidth{.check = what,
                      .unit = Unit::bytes_per_second,
                      .value = link.bytes_per_second,
                      .tolerance = tolerances(rank).links,
                      .whose = whose};
    const int inside = (link.ranks + link.domains - 1) / link.domains;
    if (rank.known != nullptr && link.kind != Collective::all_to_all)
      bandwidth.limit = kLinkLimit * Prices(*rank.known).ring(link.ranks, inside).bytes_per_second;
    rank.findings.push_back(bandwidth);
    rank.findings.push_back({.check = str(what, ", latency"),
                             .unit = Unit::seconds,
                             .value = link.latency_seconds,
                             .tolerance = tolerances(rank).latency,
                             .whose = whose});
  }
  return links;
}

Slowdown check_slowdown(PreflightRank& rank, const ProductShape& shape) {
  Communicator* group = group_beside(rank.comms);
  if (group == nullptr) return {};
  const std::int64_t part = 4 * kMiB / 4 / group->size();
  Arena arena(rank.compute.device(), Arena::Memory::device, 8 * kMiB + kMiB);
  const Tensor in = arena.allocate("in", DType::fp32, {part});
  const Tensor out = arena.allocate("out", DType::fp32, {part * group->size()});
  fill(rank.compute, in, 1.0f);
  Product product(rank.compute, shape);
  Stream beside(rank.compute.device(), "beside",
                rank.on_gpus() ? Stream::Mode::immediate : Stream::Mode::queued);
  const auto gather = [&](int calls) {
    for (int i = 0; i < calls; ++i)
      group->all_gather(out, in, beside);
  };
  const auto make_product = [&] {
    product.make();
    rank.compute.synchronize();
  };
  const auto products_take = [&](int calls) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i)
      make_product();
    return seconds_since(begin);
  };
  const auto gathers_take = [&](int calls) {  // alone
    meet(rank.world);
    const auto begin = Clock::now();
    gather(calls);
    beside.synchronize();
    return seconds_since(begin);
  };
  make_product();
  gathers_take(2);
  const double gather_seconds = median_of_ranks(rank.world, gathers_take(5) / 5);
  const int gathers = static_cast<int>(std::clamp(kWindow / gather_seconds, 1.0, 1e4));
  const double gathers_alone = gathers_take(gathers);
  meet(rank.world);
  const double product_seconds = products_take(3) / 3;
  const int products = static_cast<int>(std::clamp(kWindow / product_seconds, 1.0, 1e5));
  const double products_alone = products_take(products);

  // Products, while gathers run for longer; then gathers, while products do.
  meet(rank.world);
  gather(4 * gathers);
  const double products_beside = products_take(products);
  beside.synchronize();
  meet(rank.world);
  const auto begin = Clock::now();
  gather(gathers);
  const Event done = beside.record();
  while (!done.is_done())
    make_product();
  const double gathers_beside = seconds_since(begin);
  beside.synchronize();

  return {median_of_ranks(rank.world, std::max(1.0, products_beside / products_alone)),
          median_of_ranks(rank.world, std::max(1.0, gathers_beside / gathers_alone))};
}

StorageRates check_storage(PreflightRank& rank, const fs::path& scratch) {
  const auto here = machine_ranks(rank.topology, rank.world.rank());
  const auto of_node = of_memory(rank, (rank.on_gpus() ? 1024 : 128) * kMiB) / kMiB;
  const std::int64_t bytes = std::max<std::int64_t>(of_node / std::ssize(here), 8) * kMiB;
  StorageRates rates;
  const Scratch file{scratch / str("preflight-", host_name(), "-", getpid(), ".tmp")};
  std::vector<std::byte> piece(static_cast<std::size_t>(4 * kMiB));
  std::string written;
  rank.add({.check = "storage, written",
            .unit = Unit::bytes_per_second,
            .tolerance = tolerances(rank).storage},
           [&](Finding& f) {
             if (!directory_exists(scratch))
               throw ConfigError(str("--scratch ", scratch.string(), ": no such folder"));
             Hasher hasher;
             double seconds = 0;
             auto begin = Clock::now();
             RangeWriter writer(file.path, file.path, RangeWriter::Way::direct,
                                RangeWriter::Start::empty);
             seconds += seconds_since(begin);
             for (std::int64_t i = 0; i < bytes / std::ssize(piece); ++i) {
               fill_words(piece, static_cast<std::uint64_t>(i) + 1);
               hasher.add(piece);
               begin = Clock::now();
               writer.write(piece);
               seconds += seconds_since(begin);
               made_progress();
             }
             begin = Clock::now();
             writer.commit();
             seconds += seconds_since(begin);
             written = hasher.hex();
             rates.write = f.value = static_cast<double>(bytes) / seconds;
           });
  rank.add({.check = "storage, read",
            .unit = Unit::bytes_per_second,
            .tolerance = tolerances(rank).storage},
           [&](Finding& f) {
             const ReadFile read(file.path);
             read.drop_cache();
             Hasher hasher;
             double seconds = 0;
             for (std::int64_t at = 0; at < bytes; at += std::ssize(piece)) {
               const auto begin = Clock::now();
               read.read(piece, at);
               seconds += seconds_since(begin);
               hasher.add(piece);
               made_progress();
             }
             if (hasher.hex() != written)
               throw TransientError(str(file.path.string(), ": other bytes than were written"));
             rates.read = f.value = static_cast<double>(bytes) / seconds;
           });
  return rates;
}

HealthCounters read_counters(const GpuMonitor* monitor) {
  return {error_counters(), monitor == nullptr ? GpuHealth() : monitor->health()};
}

void check_counters(PreflightRank& rank, const HealthCounters& before, const GpuMonitor* monitor) {
  const auto now = read_counters(monitor);
  rank.add({.check = "errors of adapters and processors, new", .limit = 0}, [&](Finding& f) {
    f.value = 0;
    for (const auto& [counter, count] : growth(before.machine, now.machine)) {
      f.value += static_cast<double>(count);
      f.detail += str(f.detail.empty() ? "" : ", ", counter, " +", count);
    }
  });
  if (!rank.on_gpus()) return;
  const auto add = [&](const char* check, const std::optional<std::int64_t>& count) {
    rank.add({.check = check, .limit = 0},
             [&](Finding& f) { f.value = count ? static_cast<double>(*count) : Finding::kNone; });
  };
  using Count = std::optional<std::int64_t>;
  add("uncorrected errors of the GPU's memory", now.gpu.uncorrected_errors);
  add("rows of the GPU's memory to be replaced",
      now.gpu.needs_repair ? Count(*now.gpu.needs_repair ? 1 : 0) : Count());
  add("NVLinks that are down", now.gpu.links_down ? Count(*now.gpu.links_down) : Count());
  const bool counts_links = now.gpu.link_errors && before.gpu.link_errors;
  add("errors of NVLinks, new",
      counts_links ? Count(*now.gpu.link_errors - *before.gpu.link_errors) : Count());
}

double launch_seconds(Stream& compute) {
  if (!compute.is_cuda()) return 0;
  constexpr int kCalls = 1000;  // fewer than a GPU lets wait
  Arena arena(compute.device(), Arena::Memory::device, kMiB);
  const Tensor few = arena.allocate("few", DType::fp32, {32});
  const auto enqueue = [&] {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i)
      fill(compute, few, 1.0f);
    return seconds_since(begin) / kCalls;
  };
  enqueue();
  compute.synchronize();
  const double seconds = enqueue();
  compute.synchronize();
  return seconds;
}

}  // namespace lockstep
