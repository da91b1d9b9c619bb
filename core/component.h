// Component names the parts of a step's time. A plan (launch/plan/step_time.h) and a run
// (core/trace.h) use the same components.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// Components in the order of tables. products: matmuls (GEMMs). communication: time that compute
// waits, by mesh axis; `ranks`: along all axes; `host`: copies between a GPU and its host.
// other: the rest, for example time in which the GPU waits for a slow host.
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
const char* name(Component component);      // "communication_tensor", the name in JSON
const char* in_words(Component component);  // "communication, tensor"

// Seconds of a step.
struct StepTime {
  std::array<double, kComponents> seconds{};
  double total() const;
  // True if a table has a row for it: components below 0.005 % of the step are left out.
  bool shows(Component component) const;
  double& operator[](Component component) { return seconds[static_cast<std::size_t>(component)]; }
  double operator[](Component component) const {
    return seconds[static_cast<std::size_t>(component)];
  }
};

}  // namespace lockstep
