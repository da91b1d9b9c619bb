#include "core/system/counters.h"

#include <array>
#include <fstream>

#include "core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Counters of a port that a faulty cable or switch increases.
constexpr std::array kPortCounters{"symbol_error",
                                   "link_error_recovery",
                                   "link_downed",
                                   "port_rcv_errors",
                                   "port_rcv_remote_physical_errors",
                                   "local_link_integrity_errors"};
constexpr std::array kPortHardwareCounters{"local_ack_timeout_err", "packet_seq_err",
                                           "rnr_nak_retry_err"};
constexpr std::array kNetCounters{"rx_errors", "rx_crc_errors", "tx_errors", "tx_carrier_errors"};
constexpr std::array kThrottles{"core_throttle_count", "package_throttle_count"};

template <class Act>
void for_each_entry(const fs::path& directory, const Act& act) {
  std::error_code none;
  for (fs::directory_iterator at(directory, none), end; !none && at != end; at.increment(none))
    act(at->path());
}

// Adds the count in `file`, if the file exists.
void add(Counters& counters, const std::string& name, const fs::path& file) {
  std::int64_t count = 0;
  if (std::ifstream(file) >> count) counters[name] += count;
}

}  // namespace

Counters error_counters(const fs::path& sysfs) {
  Counters counters;
  for_each_entry(sysfs / "class/infiniband", [&](const fs::path& adapter) {
    for_each_entry(adapter / "ports", [&](const fs::path& port) {
      const auto where = str(adapter.filename().string(), " port ", port.filename().string(), " ");
      for (const char* name : kPortCounters)
        add(counters, str(where, name), port / "counters" / name);
      for (const char* name : kPortHardwareCounters)
        add(counters, str(where, name), port / "hw_counters" / name);
    });
  });
  for_each_entry(sysfs / "class/net", [&](const fs::path& adapter) {
    for (const char* name : kNetCounters)
      add(counters, str(adapter.filename().string(), " ", name), adapter / "statistics" / name);
  });
  for_each_entry(sysfs / "devices/system/cpu", [&](const fs::path& processor) {
    for (const char* name : kThrottles)
      add(counters, str("CPU ", name), processor / "thermal_throttle" / name);
  });
  return counters;
}

Counters growth(const Counters& before, const Counters& after) {
  Counters grown;
  for (const auto& [name, count] : after) {
    const auto old = before.find(name);
    if (old != before.end() && count > old->second) grown[name] = count - old->second;
  }
  return grown;
}

}  // namespace lockstep
