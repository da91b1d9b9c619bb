// Any text is rejected as a cluster file and as a place of a rank, or survives a round trip. The
// domains of a cluster have each rank once.
#include "tests/fuzz/fuzz.h"
#include "tests/support/topology_file.h"

namespace lockstep::fuzz::cluster_fuzz {
constexpr const char* kCluster =
    R"({"hosts": [{"name": "n", "count": 2, "ranks": 4, "gpu": "H", "adapters": 2, "numa_nodes": 2},)"
    R"({"name": "b", "ranks": 4, "gpu": "A", "nvlink": [[0, 1], [2]]},)"
    R"({"name": "f", "ranks": 2, "gpu": "G", "fabric": "r"}, {"name": "c", "ranks": 1}]})";

void check_place(const RankPlace& place) {
  check_reads_back(to_json(place).dump(), [](const std::string& text) {
    return to_json(rank_place(Json::parse(text, "place"))).dump();
  });
}

void check(std::string_view text) {
  if (text.find("\"machine\"") != std::string_view::npos)
    check_place(rank_place(Json::parse(text, "input")));
  const auto places = pretend_cluster_of(text, "input");
  if (places.size() > 256) return;  // large clusters are slow
  const auto topology = topology_of(places);
  std::size_t ranks = 0;
  for (const auto& domain : topology.domains)
    ranks += domain.ranks.size();
  LOCKSTEP_CHECK(ranks == places.size(), ranks, " of ", places.size(), " ranks in domains");
  check_place(places.back());
}

Seeds seeds() {
  const auto places = pretend_cluster_of(kCluster, "seed");
  return {kCluster, R"({"hosts": [{"name": "n", "ranks": 2, "gpu": "H", "nvlink": "none"}]})",
          to_json(places.front()).dump(), to_json(places.back()).dump()};
}

const Target target("cluster", seeds, check);

}  // namespace lockstep::fuzz::cluster_fuzz
