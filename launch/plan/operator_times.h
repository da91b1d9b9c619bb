// OperatorTimes: what calls of operators took, measured on running streams: a step that was logged
// (core/op_log.h). The planner looks up in it what it recorded on measuring ones.
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
  // Calls alike: of one operator on one type, with the same FLOPs, bytes and sizes.
  struct Time {
    std::string name;
    DType dtype = DType::fp32;
    std::array<std::int64_t, 4> sizes{};
    double flops = 0;
    std::int64_t bytes = 0;
    std::int64_t calls = 0;  // that were measured
    double seconds = 0;      // of one: the median
  };

  OperatorTimes() = default;
  // Of logs of the same program, one a step. Collectives and transfers are left out.
  explicit OperatorTimes(const std::vector<const OpLog*>& logs);

  // Seconds of such a call: as measured; or, where the operator was measured at other sizes, by the
  // line through the two whose work is nearest in logarithms (a product's or attention's in FLOPs,
  // another's in bytes), beyond the last in proportion. Nothing of an operator that was not.
  std::optional<double> seconds(const Op& op) const;

  const std::vector<Time>& times() const { return times_; }
  static OperatorTimes parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  void sort();

  std::vector<Time> times_;  // by operator, type and work
};

}  // namespace lockstep
