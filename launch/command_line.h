// The command line: its verbs, their flags and help.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Runs the verb that the arguments (without the program's name) name, and returns its exit code.
// Results, help and version go to standard output, whose failures the caller sees. Throws
// UsageError, with the nearest verb or flag, on what is not understood, and whatever the verb
// throws.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep
