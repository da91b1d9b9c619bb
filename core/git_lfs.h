// Git LFS stores a pointer, a short text, in place of a file that was not fetched.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kGitLfsPointer = "version https://git-lfs.github.com/spec/";
// End of an error message that starts with "expected X, ".
inline constexpr const char* kGitLfsAdvice =
    "found a Git LFS pointer; fetch the file with `git lfs pull`";

}  // namespace lockstep
