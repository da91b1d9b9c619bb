#include "launch/plan/link_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <span>
#include <tuple>

#include "kernels/elementwise.h"

namespace lockstep {
namespace {

constexpr std::array kKinds{Collective::all_gather, Collective::all_to_all, Collective::all_reduce};
// Received bytes. NVLink reaches its full speed at about 100 MB.
constexpr std::array<std::int64_t, 9> kBytes{4 << 10, 32 << 10, 128 << 10, 256 << 10, 512 << 10,
                                             1 << 20, 2 << 20,  4 << 20,   16 << 20};
constexpr std::array<std::int64_t, 6> kGpuBytes{32 << 10, 256 << 10, 2 << 20,
                                                16 << 20, 64 << 20,  256 << 20};
constexpr int kRounds = 9;

Collective kind_of(const std::string& text) {
  for (const auto kind : kKinds)
    if (text == name(kind)) return kind;
  throw DataError(str("\"", text, "\" is not a measured collective"));
}

// Call owns buffers for a collective that receives `bytes`.
class Call {
 public:
  Call(Arena& arena, Communicator& group, Collective kind, std::int64_t bytes)
      : group_(group), kind_(kind) {
    const std::int64_t n = group.size();
    const auto each = std::max<std::int64_t>(
        bytes / bytes_per_element(DType::fp32) / (kind == kReduce ? 2 : 1), n);
    const auto part = each / (n - 1);
    in_ = arena.allocate("sent", DType::fp32, {kind == kGather ? part : part * n});
    out_ = arena.allocate("received", DType::fp32, {part * n});
  }
  void clear(Stream& stream) {
    fill(stream, in_, 1.0f);
    fill(stream, out_, 0.0f);
  }
  void make(Stream& stream) {
    if (kind_ == kGather) group_.all_gather(out_, in_, stream);
    if (kind_ == Collective::all_to_all) group_.all_to_all(out_, in_, stream);
    if (kind_ == kReduce) group_.all_reduce(in_, ReduceOp::max, stream);
  }

 private:
  static constexpr auto kGather = Collective::all_gather, kReduce = Collective::all_reduce;
  Communicator& group_;
  Collective kind_;
  Tensor in_, out_;
};

// Measures as in a step: the sent data were just written, so only the cache of the sender has them.
double median_seconds(Call& call, Communicator& group, Stream& compute, Stream& stream) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> all;
  for (int round = 0; round <= kRounds; ++round) {  // the first round is a warm-up
    call.clear(compute);
    compute.synchronize();
    group.barrier(stream);
    stream.synchronize();
    const auto begin = Clock::now();
    call.make(stream);
    stream.synchronize();
    if (round > 0) all.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(all.begin(), all.begin() + kRounds / 2, all.end());
  return all[kRounds / 2];
}

std::span<const std::int64_t> bytes_on(Device device) {
  return device.kind == Device::Kind::cuda ? std::span<const std::int64_t>(kGpuBytes) : kBytes;
}

LinkTime measure_link(Communicator& group, Collective kind, Arena& memory, Stream& compute,
                      Stream& stream) {
  std::vector<std::pair<double, double>> times;
  for (const auto bytes : bytes_on(compute.device())) {
    const Arena::Scope scope(memory);
    Call call(memory, group, kind, bytes);
    const auto before = group.traffic(kind);
    const double seconds = median_seconds(call, group, compute, stream);
    const auto& after = group.traffic(kind);
    times.emplace_back(static_cast<double>(after.bytes - before.bytes) /
                           static_cast<double>(after.calls - before.calls),
                       seconds);
  }
  LinkTime link = fit_link(std::move(times));
  link.kind = kind;
  link.ranks = group.size();
  return link;
}

}  // namespace

double LinkTime::seconds(std::int64_t bytes) const {
  LOCKSTEP_CHECK(!times.empty(), name(kind), " of ", ranks, " ranks has no times");
  const auto n = static_cast<double>(bytes);
  const auto above = std::ranges::find_if(times, [&](const auto& time) { return time.first >= n; });
  if (above == times.begin()) return above->second;
  const auto& [low, low_seconds] = *(above - 1);
  if (above == times.end()) return low_seconds * n / low;
  const auto& [high, high_seconds] = *above;
  return low_seconds *
         std::pow(high_seconds / low_seconds, std::log(n / low) / std::log(high / low));
}

LinkTime fit_link(std::vector<std::pair<double, double>> times) {
  // With x = bytes / t and w = 1 / t: least squares of a w + x / b = 1.
  double ww = 0, wx = 0, xx = 0, w1 = 0, x1 = 0, fastest = 0;
  for (const auto& [bytes, seconds] : times) {
    const double w = 1 / seconds, x = bytes / seconds;
    ww += w * w;
    wx += w * x;
    xx += x * x;
    w1 += w;
    x1 += x;
    fastest = std::max(fastest, x);
  }
  const double determinant = ww * xx - wx * wx;
  double latency = (w1 * xx - x1 * wx) / determinant, inverse = (x1 * ww - w1 * wx) / determinant;
  // A line that is almost all latency has no meaningful bandwidth.
  if (latency < 0 || inverse * fastest < 0.1) {
    latency = 0;
    inverse = x1 / xx;
  }
  LinkTime link{.latency_seconds = latency, .bytes_per_second = 1 / inverse};
  for (const auto& [bytes, seconds] : times)
    link.worst_error =
        std::max(link.worst_error, std::abs((latency + bytes * inverse) / seconds - 1));
  link.times = std::move(times);
  return link;
}

Arena LinkTimes::memory(World& world, Device device) {
  const auto bytes = (world.size() > 1 ? 8 * bytes_on(device).back() : 0) + (1 << 20);
  auto memory = world.allocate(bytes);
  return memory ? Arena(device, std::move(memory), bytes)
                : Arena(device, Arena::Memory::device, bytes);
}

LinkTimes LinkTimes::measure(Comms& comms, Arena& memory, Stream& compute,
                             const Topology* topology) {
  std::vector<LinkTime> links;
  std::set<std::tuple<int, int, bool>> seen;
  const auto mode = compute.is_cuda() ? Stream::Mode::immediate : Stream::Mode::queued;
  Stream beside(compute.device(), "links", mode);
  for (std::size_t g = 0; g < kGroups; ++g) {
    const auto id = static_cast<Group>(g);
    auto& group = group_of(comms, id);
    const auto place = place_of(comms, id, topology);
    const bool is_beside = runs_beside(id, compute.device());
    if (place.ranks == 1) continue;
    // All ranks of a group measure it, even if some have measured a similar one: on unequal hosts
    // others may not have.
    const bool is_new = seen.emplace(place.ranks, place.domains, is_beside).second;
    for (const auto kind : kKinds) {
      LinkTime link = measure_link(group, kind, memory, compute, is_beside ? beside : compute);
      link.domains = place.domains;
      link.beside = is_beside;
      if (is_new) links.push_back(std::move(link));
    }
  }
  return LinkTimes(std::move(links));
}

std::optional<double> LinkTimes::seconds(Collective kind, const GroupPlace& place, bool beside,
                                         std::int64_t bytes) const {
  // A reduce-scatter is not measured. It moves the bytes of an all-gather the other way.
  if (kind == Collective::reduce_scatter) kind = Collective::all_gather;
  const LinkTime* nearest = nullptr;
  for (const LinkTime& link : links_)
    if (link.kind == kind && link.domains == place.domains && link.beside == beside &&
        (nearest == nullptr ||
         std::abs(link.ranks - place.ranks) < std::abs(nearest->ranks - place.ranks)))
      nearest = &link;
  if (nearest == nullptr) return std::nullopt;
  return nearest->seconds(bytes);
}

namespace {

LinkTime parse_link(const Json& json) {
  LinkTime link{.kind = kind_of(text_at(json, "collective")),
                .ranks = static_cast<int>(integer_at(json, "ranks", 2, 1 << 20)),
                .domains = static_cast<int>(integer_at(json, "domains", 1, 1 << 20)),
                .beside = json.at("beside").as_bool(),
                .latency_seconds = json.at("latency_seconds").as_double(),
                .bytes_per_second = json.at("bytes_per_second").as_double(),
                .worst_error = json.at("worst_error").as_double()};
  constexpr double kMostSeconds = 1e9;  // keeps sums finite
  double bytes = 0;                     // of the previous time
  bool is_rising = true;
  for (const Json& time : json.at("times").as_array()) {
    link.times.emplace_back(time.at("bytes").as_double(), time.at("seconds").as_double());
    const auto& [now, seconds] = link.times.back();
    is_rising &= now > bytes && seconds > 0 && seconds < kMostSeconds;
    bytes = now;
  }
  if (link.latency_seconds >= 0 && link.latency_seconds < kMostSeconds &&
      link.bytes_per_second >= 1 && link.worst_error >= 0 && is_rising && !link.times.empty())
    return link;
  throw DataError(str(name(link.kind), " of ", link.ranks,
                      " ranks: expected latency_seconds and worst_error of at least 0, "
                      "bytes_per_second of at least 1, and times with positive seconds and rising "
                      "bytes"));
}

}  // namespace

LinkTimes LinkTimes::parse(const Json& json) {
  std::vector<LinkTime> links;
  for (const Json& one : json.as_array())
    in_context([&] { links.push_back(parse_link(one)); }, "[", links.size(), "]");
  return LinkTimes(std::move(links));
}

Json LinkTimes::to_json() const {
  Json::Array all;
  for (const LinkTime& link : links_) {
    Json::Array times;
    for (const auto& [bytes, seconds] : link.times)
      times.emplace_back(Json::Object{{"bytes", bytes}, {"seconds", seconds}});
    all.emplace_back(Json::Object{{"collective", name(link.kind)},
                                  {"ranks", link.ranks},
                                  {"domains", link.domains},
                                  {"beside", link.beside},
                                  {"latency_seconds", link.latency_seconds},
                                  {"bytes_per_second", link.bytes_per_second},
                                  {"worst_error", link.worst_error},
                                  {"times", times}});
  }
  return all;
}

}  // namespace lockstep
