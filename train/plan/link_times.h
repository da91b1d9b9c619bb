// LinkTimes: what collectives take, measured between the ranks that are there: of each kind and
// kind of group a latency and a bandwidth, by least squares over sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/json.h"
#include "dist/volume.h"

namespace lockstep {

struct LinkTime {
  Collective kind = Collective::all_gather;
  int ranks = 2, domains = 1;  // of the group, and over how many domains they are spread
  bool beside = false;         // on a stream beside compute, which on a CPU has a thread of its own
  double latency_seconds = 0;  // of a call
  double bytes_per_second = 0;  // that a rank receives (Communicator::Traffic)
  double worst_error = 0;       // of the line, relative, over the sizes that were measured

  double seconds(std::int64_t bytes) const {
    return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  }
};

// The line latency + bytes / bandwidth with the least sum of squared relative errors.
//   times: bytes and seconds, at least two of unequal bytes
LinkTime fit_link(const std::vector<std::pair<double, double>>& times);

class LinkTimes {
 public:
  LinkTimes() = default;
  explicit LinkTimes(std::vector<LinkTime> links) : links_(std::move(links)) {}

  // Of each kind of group of `comms` that has other ranks; all ranks at once.
  static LinkTimes measure(Comms& comms, Stream& compute, const Topology* topology = nullptr);

  // A call of that kind of a group like this; of another number of ranks as that of the nearest.
  std::optional<double> seconds(Collective kind, const GroupPlace& place, bool beside,
                                std::int64_t bytes) const;

  const std::vector<LinkTime>& links() const { return links_; }
  static LinkTimes parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::vector<LinkTime> links_;
};

}  // namespace lockstep
