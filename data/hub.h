// Recognizes names of Hugging Face Hub repositories that are given instead of local paths.
#pragma once

#include <string>

namespace lockstep {

// Returns how to download `what` if it may be a Hub id ("openai-community/gpt2",
// "org/name@REVISION", "datasets/org/name") or is an address. Returns "" for a path, or if a file
// of that name exists. Downloads nothing.
std::string download_advice(const std::string& what);

}  // namespace lockstep
