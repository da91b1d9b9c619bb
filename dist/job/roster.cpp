#include "dist/job/roster.h"

#include "core/zstd.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // 2^20 ranks

}  // namespace

Bytes encode(const Roster& roster) {
  BodyWriter writer;
  writer.number(roster.pid);
  for (const auto& host : roster.hosts)
    writer.text(host);
  return zstd_compressed(writer.take());
}

Roster decode_roster(std::span<const std::byte> body) {
  const Bytes bytes = zstd_decompressed(body, kMostBytes);
  BodyReader reader(bytes);
  Roster roster{.pid = reader.number<std::int32_t>()};
  while (!reader.at_end())
    roster.hosts.push_back(reader.text());
  return roster;
}

}  // namespace lockstep
