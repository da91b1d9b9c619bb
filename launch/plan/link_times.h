// LinkTimes: what collectives take, measured between the ranks that are there: of each kind and
// kind of group the seconds of some sizes, and a latency and a bandwidth by least squares over
// them.
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
  // Bytes that a rank receives (Communicator::Traffic) and seconds, in the order of bytes.
  std::vector<std::pair<double, double>> times{};
  // The line latency + bytes / bandwidth with the least sum of squared relative errors: what people
  // and `preflight` compare links by.
  double latency_seconds = 0;
  double bytes_per_second = 0;
  double worst_error = 0;  // of the line, relative

  // Of a call: between two sizes by the line through both in logarithms (small messages are sent
  // otherwise than large ones, which are slower than caches: no one line is near all); below the
  // first size what that takes, above the last in proportion.
  double seconds(std::int64_t bytes) const;
};

// With the line; where the best one has a negative latency, or a bandwidth ten times that of any
// call (as of times that do not rise), with the best of no latency.
//   times: at least two of unequal bytes
LinkTime fit_link(std::vector<std::pair<double, double>> times);

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
