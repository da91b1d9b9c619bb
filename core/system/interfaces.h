#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Where others may reach this machine: the addresses of its interfaces but the loopback's, IPv4
// first; "127.0.0.1" where there is no other. `interfaces` (LOCKSTEP_INTERFACE) is a list of names
// or of their beginnings, "ib0,eth"; only those count, the loopback's too. Throws ConfigError where
// none has such a name, listing those that are there.
std::vector<std::string> local_addresses(const std::string& interfaces = "");

}  // namespace lockstep
