#pragma once

#include <string>

namespace lockstep {

// "lockstep 0.1.0", then lines for commit, compiler, CPU and GPU.
std::string version_text();
std::string version_and_commit();  // "0.1.0, commit 827b9f19baeb"

}  // namespace lockstep
