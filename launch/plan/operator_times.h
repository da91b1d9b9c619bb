// OperatorTimes: measured times of operator calls, from steps logged on running streams
// (core/op_log.h). The planner looks up the calls that it recorded on measuring streams.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/op_log.h"

namespace lockstep {

class OperatorTimes {
 public:
  // Equal calls: one operator and type, with the same FLOPs, bytes and sizes.
  struct Time {
    std::string name;
    DType dtype = DType::fp32;
    std::array<std::int64_t, 4> sizes{};
    double flops = 0;
    std::int64_t bytes = 0;
    std::int64_t calls = 0;  // number of measured calls
    double seconds = 0;      // median time of a call
  };

  OperatorTimes() = default;
  // Takes logs of the same program, one per step. Collectives and transfers are omitted.
  explicit OperatorTimes(const std::vector<const OpLog*>& logs);

  // Time of a call, as measured. For other sizes it interpolates in logarithms between the two
  // nearest amounts of work (FLOPs of matmuls and attention, bytes of other operators), and scales
  // in proportion beyond the last. Returns nullopt for an operator that was not measured.
  std::optional<double> seconds(const Op& op) const;

  const std::vector<Time>& times() const { return times_; }
  static OperatorTimes parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  void sort();

  std::vector<Time> times_;  // sorted by operator, type and work
};

}  // namespace lockstep
