// StepTime: how long a recorded step takes, by what its compute stream does or waits for, when each
// call takes what `price` says. Streams run beside each other as they were told to wait; what runs
// beside compute slows it, and is slowed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "train/step_program.h"

namespace lockstep {

// Of a step's time, in the order in which tables have them. Communication: what compute waits for,
// by the axis of the mesh that it goes along; `ranks` along all of them; `host`: copies of what is
// offloaded. other: what nothing else names, such as a host that is late.
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
const char* name(Component component);                 // "communication_tensor", a member of JSON
const char* in_words(Component component);             // "communication, tensor"
Component component_of_group(std::string_view group);  // of a Communicator by its name

struct StepTime {
  std::array<double, kComponents> seconds{};
  double total() const;
  double& operator[](Component component) { return seconds[static_cast<std::size_t>(component)]; }
  double operator[](Component component) const {
    return seconds[static_cast<std::size_t>(component)];
  }
};

struct StreamCosts {
  static constexpr auto kNotSlowed = [](const Op& /*op*/) { return 1.0; };

  // Of a call alone.
  FunctionRef<double(const Op& op)> seconds;
  // How many times longer a call takes while others run beside it: of the compute stream while `op`
  // runs on another one (of several, what slows it most); and of the others while compute runs.
  FunctionRef<double(const Op& op)> compute_beside = kNotSlowed;
  double other_beside = 1;
  // What the host needs to give a stream a call, of a GPU, which runs behind it; 0: it is never
  // late. A CPU's compute stream is the host.
  double launch_seconds = 0;
  bool host_computes = false;
};

StepTime step_time(const StepProgram& program, const StreamCosts& costs);

}  // namespace lockstep
