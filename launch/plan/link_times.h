// LinkTimes: measured times of collectives between ranks. For each collective and kind of group it
// has the times of some sizes, and a latency and a bandwidth fitted to them by least squares.
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
  int ranks = 2, domains = 1;  // ranks of the group, and NVLink domains that they span
  bool beside = false;         // on a stream beside compute; on a CPU that stream has a thread
  // Bytes that a rank receives (Communicator::Traffic) and seconds, ordered by bytes.
  std::vector<std::pair<double, double>> times{};
  // The line latency + bytes / bandwidth with the least sum of squared relative errors. Readers and
  // `preflight` compare links by it.
  double latency_seconds = 0;
  double bytes_per_second = 0;
  double worst_error = 0;  // largest relative error of the line

  // Time of a call. Between two measured sizes it interpolates in logarithms, because protocols and
  // caches differ by size and one line fits none well. Below the first size it returns the time of
  // that size; above the last it scales in proportion.
  double seconds(std::int64_t bytes) const;
};

// Fits the line. If its latency is negative, or its bandwidth ten times that of any call (as for
// times that do not rise), it fits a line without latency.
//   times: at least two, with different bytes
LinkTime fit_link(std::vector<std::pair<double, double>> times);

class LinkTimes {
 public:
  LinkTimes() = default;
  explicit LinkTimes(std::vector<LinkTime> links) : links_(std::move(links)) {}

  // Allocates the memory that measure() sends from. Every rank of `world` calls it.
  static Arena memory(World& world, Device device);
  // Measures each kind of group of `comms` that has several ranks. A collective call.
  static LinkTimes measure(Comms& comms, Arena& memory, Stream& compute,
                           const Topology* topology = nullptr);

  // Time of a collective in a similar group; the group with the nearest number of ranks is used.
  std::optional<double> seconds(Collective kind, const GroupPlace& place, bool beside,
                                std::int64_t bytes) const;

  const std::vector<LinkTime>& links() const { return links_; }
  static LinkTimes parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::vector<LinkTime> links_;
};

}  // namespace lockstep
