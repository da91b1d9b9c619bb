// topology_bench [HOSTS]: what a start of HOSTS hosts (default 2048) of 8 GPUs each costs every
// rank on its processor, best of rounds, with the ranks as a launcher starts them and shuffled.
//
//   parse      what each rank says of itself, from JSON
//   topology   the NVLink domains
//   placement  of the mesh shard 64, tensor 8 (and shard 512, tensor 1)
//   levels     the two levels of the data axes of one rank
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>

#include "core/philox.h"
#include "dist/topology/topology_placement.h"
#include "tests/support/topology_file.h"

namespace lockstep {
namespace {

double best_of(const std::function<void()>& work) {
  constexpr int kRounds = 5;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

void run(const char* name, const std::vector<RankPlace>& places) {
  std::vector<std::string> texts;
  for (const auto& place : places)
    texts.push_back(to_json(place).dump());
  const double parse = best_of([&] {
    for (const auto& text : texts)
      rank_place(Json::parse(text, "place"));
  });
  Topology topology;
  const double domains = best_of([&] { topology = topology_of(places); });
  const int ranks = static_cast<int>(places.size());
  for (const auto& mesh : {Mesh{.replicate = ranks / 512, .shard = 64, .tensor = 8},
                           Mesh{.replicate = ranks / 512, .shard = 512}}) {
    std::vector<int> order;
    const double placed = best_of([&] { order = placement(mesh, topology); });
    const auto in_order = renumbered(topology, order);
    const double levels = best_of([&] { two_levels(in_order, mesh.peers(Axis::shard, 0)); });
    std::printf(
        "%-10s %6d ranks  %3d x %3d x %d   parse %6.1f ms   topology %6.1f ms   "
        "placement %6.1f ms   levels %5.1f ms\n",
        name, ranks, mesh.size(Axis::replicate), mesh.size(Axis::shard), mesh.size(Axis::tensor),
        1e3 * parse, 1e3 * domains, 1e3 * placed, 1e3 * levels);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const int hosts = argc > 1 ? std::atoi(argv[1]) : 2048;
  auto places = pretend_cluster_of(str(R"({"hosts": [{"name": "n", "count": )", hosts,
                                       R"(, "ranks": 8, "gpu": "H100", "adapters": 8}]})"),
                                   "bench");
  run("in order", places);
  for (std::size_t i = places.size(); i > 1; --i)
    std::swap(places[i - 1], places[philox(1, 1, i)[0] % i]);
  run("shuffled", places);
}
