// start_agents() starts the agents of a supervised run on hosts by ssh, starts an agent again if it
// was killed or its host came back, and returns the exit code of the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct HostList {
  std::vector<std::string> hosts;
  int slots = 0;  // of each host; 0: the file does not say
};
// Reads a file with one host a line: "n1" or "n1 slots=8"; '#' starts a comment. Throws ConfigError
// if a line is wrong, a host occurs twice, or hosts have different slots.
HostList read_hosts(const std::filesystem::path& file);

//   command  the words of an agent, without the program: "supervise", ...
// LOCKSTEP_SSH is a program in place of ssh. Agents get the variables LOCKSTEP_..., NCCL_... and
// LD_LIBRARY_PATH, except the secret, which they read from the directory of the run.
int start_agents(const std::vector<std::string>& hosts, const std::vector<std::string>& command);

}  // namespace lockstep
