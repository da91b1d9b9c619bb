#include "train/preflight/link_checks.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "kernels/elementwise.h"
#include "train/plan/prices.h"
#include "train/preflight/host_pairs.h"
#include "train/preflight/preflight.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

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

// What this rank received, round by round.
std::vector<Received> receive_from(PreflightRank& rank,
                                   const std::vector<std::optional<int>>& partners) {
  const auto bytes = (rank.on_gpus() ? 64 : 8) * kMiB;
  Arena arena(rank.compute.device(), Arena::Memory::device, bytes);
  const Tensor buffer = arena.allocate("buffer", DType::fp32, {bytes / 4});
  fill(rank.compute, buffer, 1.0f);
  std::vector<Received> all;
  for (std::size_t round = 0; round < partners.size(); ++round) {
    std::vector<int> ranks{rank.world.rank()};
    if (partners[round]) ranks.push_back(*partners[round]);
    std::ranges::sort(ranks);
    const auto pair = rank.world.connect({str("pair ", round), ranks, Carries::parameters});
    rank.meet();
    for (int root = 0; root < 2 && pair->size() == 2; ++root) {
      const double rate = one_way(*pair, root, buffer, rank.compute);
      if (rate > 0) all.push_back({*partners[round], rate});
    }
  }
  return all;
}

void add_link(PreflightRank& rank, const LinkTime& link, const std::string& whose) {
  const auto what = str(name(link.kind), " of ", link.ranks, " ranks",
                        link.domains > 1 ? str(" in ", link.domains, " domains") : "",
                        link.beside ? ", beside compute" : "");
  Finding bandwidth{.check = what,
                    .unit = Unit::bytes_per_second,
                    .value = link.bytes_per_second,
                    .tolerance = rank.tolerances().links,
                    .whose = whose};
  const int inside = (link.ranks + link.domains - 1) / link.domains;
  if (rank.known != nullptr && link.kind != Collective::all_to_all)
    bandwidth.limit = kLinkLimit * Prices(*rank.known).ring(link.ranks, inside).bytes_per_second;
  rank.findings.push_back(bandwidth);
  rank.findings.push_back({.check = str(what, ", latency"),
                           .unit = Unit::seconds,
                           .value = link.latency_seconds,
                           .tolerance = rank.tolerances().latency,
                           .whose = whose});
}

}  // namespace

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

double check_hosts(PreflightRank& rank) {
  const auto partners = partners_on_hosts(rank.topology, rank.world.rank());
  if (partners.empty()) return 0;
  const auto rates = pair_rates(rank.world, receive_from(rank, partners));
  if (rates.partners.empty()) return 0;
  Finding finding{.check = "sends to other hosts",
                  .unit = Unit::bytes_per_second,
                  .value = rates.sent,
                  .tolerance = rank.tolerances().links};
  if (rank.known != nullptr)
    finding.limit = kLinkLimit * EngineNumbers().network * rank.known->nic_bytes_per_second;
  if (rates.partners.size() == 1) {
    const auto mine = static_cast<std::size_t>(rank.world.rank());
    finding.whose = str(who_is_who(rank.topology)[mine].words, " (to ",
                        hosts_in_words(rank.topology, rates.partners), ")");
  }
  rank.findings.push_back(finding);
  if (rates.partners.size() > 1) {
    finding.check = "receives from other hosts";
    finding.value = rates.received;
    rank.findings.push_back(finding);
  }
  return rates.sent;
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
  rank.meet();
  auto links = LinkTimes::measure(rank.comms, rank.compute, &rank.topology);
  if (rank.world.rank() == 0)  // its are of all
    for (const LinkTime& link : links.links())
      add_link(rank, link, whose);
  return links;
}

}  // namespace lockstep
