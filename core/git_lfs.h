// What Git LFS leaves in place of a file that was not fetched: a text that points to it.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kGitLfsPointer = "version https://git-lfs.github.com/spec/";
// The end of an error that begins with "expected X, ".
inline constexpr const char* kGitLfsAdvice =
    "found the pointer that Git LFS leaves in place of a file; fetch the file with `git lfs pull`";

}  // namespace lockstep
