// Recompute (activation checkpointing) selects the activations kept from forward for backward: all;
// all except the outputs of norms and activation functions; only each block's x. The rest is
// recomputed later with the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Recompute : std::uint8_t { none, cheap, block };
inline constexpr std::array<std::string_view, 3> kRecomputeNames{"none", "cheap", "block"};
inline std::string_view name(Recompute recompute) {
  return kRecomputeNames[static_cast<std::size_t>(recompute)];
}

}  // namespace lockstep
