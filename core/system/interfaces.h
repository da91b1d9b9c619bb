#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Addresses at which other hosts may reach this one: all interfaces except loopback, IPv4 first;
// "127.0.0.1" if there is no other. `interfaces` (LOCKSTEP_INTERFACE) is a list of names or
// prefixes, "ib0,eth"; only these count, and loopback may be among them. Throws ConfigError with a
// list of all interfaces if no name matches.
std::vector<std::string> local_addresses(const std::string& interfaces = "");

}  // namespace lockstep
