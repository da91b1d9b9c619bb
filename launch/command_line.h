// The command line: its verbs, their flags and help.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Runs the verb named by the arguments (without the program's name), and returns its exit code.
// Results, help and version go to standard output; the caller checks that they were written.
// Throws UsageError for an unknown verb or flag, with the nearest known one. Errors of the verb
// pass through.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep
