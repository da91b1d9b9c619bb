// `lockstep checkpoint`.
#pragma once

#include <string>

namespace lockstep {

// Writes the checkpoints of a run, oldest first: step, bytes, when it was saved, and whether it
// validates (every byte is read).
int checkpoint_list(const std::string& run);

}  // namespace lockstep
