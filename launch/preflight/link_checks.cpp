#include "launch/preflight/link_checks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "core/log.h"
#include "core/progress.h"
#include "dist/job/rank_consistency.h"
#include "kernels/elementwise.h"
#include "launch/plan/time_model.h"
#include "launch/preflight/host_pairs.h"
#include "launch/preflight/preflight.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

constexpr std::int64_t kProbeBytes = kMiB / 4;

// Measures bytes per second from rank `root` of the pair to the other.
double one_way(Communicator& pair, int root, Tensor buffer, int calls, Stream& stream) {
  pair.barrier(stream);
  stream.synchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i)
    pair.broadcast(buffer, root, stream);
  stream.synchronize();
  return calls * static_cast<double>(buffer.bytes()) / seconds_since(begin);
}

// The part of `buffer` that takes an eighth of a second at the probed rate. Both ranks of a pair
// use the lower of their rates. A collective call.
Tensor sized(World& world, std::optional<int> partner, double probed, Tensor buffer) {
  constexpr double kSeconds = 0.125;
  const auto rates = numbers_of_ranks(world, probed);
  if (!partner) return buffer;
  const double rate = std::min(probed, rates[static_cast<std::size_t>(*partner)]);
  const auto bytes = std::min(kSeconds * rate, static_cast<double>(buffer.bytes()));
  return buffer.rows(0, std::max(static_cast<std::int64_t>(bytes), kProbeBytes) / 4);
}

// Measures the rates at which this rank receives from its partners.
std::vector<Received> receive_from(PreflightRank& rank,
                                   const std::vector<std::optional<int>>& partners) {
  constexpr int kCalls = 4;
  const auto bytes = (rank.on_gpus() ? 64 : 8) * kMiB;
  Arena arena(rank.compute.device(), Arena::Memory::device, bytes);
  const Tensor buffer = arena.allocate("buffer", DType::fp32, {bytes / 4});
  fill(rank.compute, buffer, 1.0f);
  std::vector<Received> all;
  for (std::size_t round = 0; round < partners.size(); ++round) {
    const auto partner = partners[round];
    std::vector<int> ranks{rank.world.rank()};
    if (partner) ranks.push_back(*partner);
    std::ranges::sort(ranks);
    const auto pair = rank.world.connect({str("pair ", round), ranks, Carries::tensors});
    for (int root = 0; root < 2; ++root) {
      const auto rate = [&](const Tensor& part, int calls) {
        return partner ? one_way(*pair, root, part, calls, rank.compute) : 0;
      };
      const Tensor probe = buffer.rows(0, kProbeBytes / 4);
      rate(probe, 1);  // establishes the connection
      const Tensor part = sized(rank.world, partner, rate(probe, 1), buffer);
      const double sent = rate(part, kCalls);
      if (partner && pair->rank() != root) all.push_back({*partner, sent});
      made_progress();
    }
  }
  return all;
}

void add_link(PreflightRank& rank, const SlowestLink& link) {
  const auto what = str(name(link.kind), " of ", link.ranks, " ranks",
                        link.domains > 1 ? str(" in ", link.domains, " domains") : "",
                        link.beside ? ", beside compute" : "");
  const Mesh& mesh = rank.comms.mesh;
  const auto of =
      str("replicate ", mesh.replicate, " x shard ", mesh.shard, " x tensor ", mesh.tensor);
  Finding bandwidth{.check = what,
                    .unit = Unit::bytes_per_second,
                    .value = link.bytes_per_second,
                    .tolerance = rank.tolerances().links,
                    .detail = str("of the group of rank ", link.rank, " on ",
                                  hosts_in_words(rank.topology, {link.rank})),
                    .of = of};
  const int inside = GroupPlace{link.ranks, link.domains}.inside();
  if (rank.known != nullptr && link.kind != Collective::all_to_all)
    bandwidth.limit = kLinkLimit * TimeModel(*rank.known).ring(link.ranks, inside).bytes_per_second;
  rank.add_of_all(bandwidth);
  rank.add_of_all({.check = str(what, ", latency"),
                   .unit = Unit::seconds,
                   .value = link.latency_seconds,
                   .tolerance = rank.tolerances().latency,
                   .of = of});
}

}  // namespace

std::vector<SlowestLink> slowest_of_ranks(World& world, const LinkTimes& links) {
  std::vector<SlowestLink> slowest;
  const auto said = world.exchange(links.to_json().dump());
  for (std::size_t r = 0; r < said.size(); ++r) {
    const auto heard = LinkTimes::parse(Json::parse(said[r], str("links of rank ", r)));
    for (const LinkTime& link : heard.links()) {
      const auto found = std::ranges::find_if(slowest, [&](const SlowestLink& one) {
        return std::tie(one.kind, one.ranks, one.domains, one.beside) ==
               std::tie(link.kind, link.ranks, link.domains, link.beside);
      });
      const double latency = link.times.front().second;
      if (found == slowest.end()) {
        slowest.push_back({.kind = link.kind,
                           .ranks = link.ranks,
                           .domains = link.domains,
                           .beside = link.beside,
                           .bytes_per_second = link.bytes_per_second,
                           .rank = static_cast<int>(r),
                           .latency_seconds = latency});
        continue;
      }
      found->latency_seconds = std::max(found->latency_seconds, latency);
      if (link.bytes_per_second >= found->bytes_per_second) continue;
      found->bytes_per_second = link.bytes_per_second;
      found->rank = static_cast<int>(r);
    }
  }
  return slowest;
}

PairRates pair_rates(World& world, const std::vector<Received>& received) {
  Json told = Json::Array{};
  PairRates mine;
  for (const Received& one : received) {
    told.push(Json::Array{one.from, one.bytes_per_second});
    mine.received = std::max(mine.received, one.bytes_per_second);
  }
  const auto said = world.exchange(told.dump());
  for (std::size_t r = 0; r < said.size(); ++r) {
    const Json heard = Json::parse(said[r], str("what rank ", r, " received"));
    for (const Json& one : heard.as_array()) {
      if (one.as_array()[0].as_integer() != world.rank()) continue;
      mine.sent = std::max(mine.sent, one.as_array()[1].as_double());
      mine.partners.push_back(static_cast<int>(r));
    }
  }
  return mine;
}

std::vector<int> ranks_without_partners(const Topology& topology) {
  std::vector<int> lonely;
  if (machines(topology).size() == 1) return lonely;
  for (int r = 0; r < static_cast<int>(topology.places.size()); ++r)
    if (std::ranges::none_of(partners_on_hosts(topology, r),
                             [](const auto& partner) { return partner.has_value(); }))
      lonely.push_back(r);
  return lonely;
}

double check_hosts(PreflightRank& rank) {
  const auto partners = partners_on_hosts(rank.topology, rank.world.rank());
  if (partners.empty()) return 0;
  const auto lonely = ranks_without_partners(rank.topology);
  if (!lonely.empty() && rank.world.rank() == 0)
    log_warning(rank_list(lonely), " on ", hosts_in_words(rank.topology, lonely),
                lonely.size() == 1 ? " has" : " have",
                " no partner with the same number on other hosts, so ",
                lonely.size() == 1 ? "its" : "their", " sends are not measured");
  const auto rates = pair_rates(rank.world, receive_from(rank, partners));
  Finding finding{.check = "sends to other hosts",
                  .unit = Unit::bytes_per_second,
                  .tolerance = rank.tolerances().links};
  if (!rates.partners.empty()) finding.value = rates.sent;
  if (rank.known != nullptr)
    finding.limit = kLinkLimit * EngineEfficiency().network * rank.known->nic_bytes_per_second;
  if (rates.partners.size() == 1) {
    const auto mine = static_cast<std::size_t>(rank.world.rank());
    const auto who = who_is_who(rank.topology)[mine];
    const auto to = str(" (to ", hosts_in_words(rank.topology, rates.partners), ")");
    finding.whose = who.words + to;
    finding.key = who.key + to;
  }
  rank.keep(finding);
  if (machines(rank.topology).size() > 2) {
    finding.check = "receives from other hosts";
    finding.value = rates.partners.size() > 1 ? rates.received : Finding::kNone;
    finding.whose = finding.key = "";
    rank.keep(finding);
  }
  return rates.sent;
}

LinkTimes check_collectives(PreflightRank& rank, double slowest) {
  if (rank.world.size() == 1) return {};
  constexpr double kLeast = 20e6;  // bytes per second: below this rate, sweeps take minutes
  if (slowest > 0 && slowest < kLeast) {
    rank.add_of_all({.check = "collectives",
                     .failure = str("the network between hosts is too slow (",
                                    in_words(slowest, Unit::bytes_per_second), ")")});
    return {};
  }
  rank.meet();
  auto links = LinkTimes::measure(rank.comms, *rank.transfers, rank.compute, &rank.topology);
  for (const SlowestLink& link : slowest_of_ranks(rank.world, links))
    add_link(rank, link);
  return links;
}

}  // namespace lockstep
