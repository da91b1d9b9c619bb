// Roster: the hosts of the ranks, as the control server sends them.
#pragma once

#include "dist/job/frame.h"

namespace lockstep {

struct Roster {
  std::int32_t pid = 0;  // of rank 0
  std::vector<std::string> hosts{};
};

// The text is compressed: at 16,384 ranks on 2,048 hosts it takes less than 40 bytes a host.
Bytes encode(const Roster& roster);
Roster decode_roster(std::span<const std::byte> body);  // throws DataError if it is damaged

}  // namespace lockstep
