// Recognition of what names a repository of the Hugging Face Hub in place of a local path.
#pragma once

#include <string>

namespace lockstep {

// How to download what `what` names, if it may be an id such as "openai-community/gpt2",
// "org/name@REVISION" or "datasets/org/name", or is an address; empty if it is a path, or something
// of that name exists. Nothing is downloaded here.
std::string download_advice(const std::string& what);

}  // namespace lockstep
