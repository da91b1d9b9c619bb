#pragma once

#include <string>

namespace lockstep {

// "lockstep 0.1.0", then a line each: commit, compiler, backends, processor.
std::string version_text();

}  // namespace lockstep
