// Component: what a step's time goes to. A plan (launch/plan/step_time.h) and a run (core/trace.h)
// divide it alike, under the same names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// In the order in which tables have them. Communication: what compute waits for, by the axis of the
// mesh that it goes along; `ranks` along all of them; `host`: copies between a GPU and its host.
// other: what nothing else names, such as a host that is late.
enum class Component : std::uint8_t {
  products,
  attention,
  memory_bound,
  communication_tensor,
  communication_shard,
  communication_replicate,
  communication_ranks,
  communication_host,
  optimizer,
  data,
  checkpoint,
  other
};
inline constexpr std::size_t kComponents = 12;
const char* name(Component component);      // "communication_tensor", a member of JSON
const char* in_words(Component component);  // "communication, tensor"

// Seconds of a step.
struct StepTime {
  std::array<double, kComponents> seconds{};
  double total() const;
  // Whether a table has a row for it: what is less than 0.005 % of the step reads as nothing.
  bool shows(Component component) const;
  double& operator[](Component component) { return seconds[static_cast<std::size_t>(component)]; }
  double operator[](Component component) const {
    return seconds[static_cast<std::size_t>(component)];
  }
};

}  // namespace lockstep
