#include "core/system/interfaces.h"

#include <algorithm>
#include <cerrno>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "core/error.h"

namespace lockstep {
namespace {

std::string numeric(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST] = "?";
  getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool listed(const std::string& interface, const std::string& list) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    if (end > begin && interface.starts_with(list.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

// IPv6 link-local addresses are useless without the interface of the connecting host.
bool routable(const sockaddr& address) {
  if (address.sa_family == AF_INET) return true;
  if (address.sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

std::vector<std::string> local_addresses(const std::string& interfaces) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    throw TransientError(str("cannot list the network interfaces: ", reason(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::vector<std::string> v4, v6, names;
  for (const auto* at = first; at != nullptr; at = at->ifa_next) {
    const std::string name = at->ifa_name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0 || !routable(*at->ifa_addr))
      continue;
    if (interfaces.empty() ? (at->ifa_flags & IFF_LOOPBACK) != 0 : !listed(name, interfaces))
      continue;
    const bool is_v4 = at->ifa_addr->sa_family == AF_INET;
    (is_v4 ? v4 : v6)
        .push_back(numeric(at->ifa_addr, is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  if (!v4.empty()) return v4;
  if (interfaces.empty()) return {"127.0.0.1"};
  std::string there;
  for (const auto& name : names)
    there += (there.empty() ? "" : ", ") + name;
  throw ConfigError(str("LOCKSTEP_INTERFACE is '", interfaces,
                        "', which matches no interface that is up and has an address; there are ",
                        there));
}

}  // namespace lockstep
