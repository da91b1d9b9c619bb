// Any .part file of a cache is started again, or lacks whole blocks in order. The first byte of the
// input is the number of blocks of the shard, a hole that is 100 bytes shorter. The rest follows
// the hole.
#include <fcntl.h>

#include "data/remote/cache_directory.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::part_file_fuzz {
constexpr auto kBlock = PartFile::kBlockBytes;

void check(std::string_view input) {
  static const MemoryFile file;
  if (input.empty() || input[0] == 0) return;
  const std::int64_t bytes = number_at<std::uint8_t>(input, 0) * kBlock - 100;
  file.set("");
  Descriptor whole(open(file.path().c_str(), O_RDWR));
  if (pwrite(whole.number(), input.data() + 1, input.size() - 1, bytes) < 0) return;
  const PartFile part("/nonexistent/fuzz", std::move(whole), bytes);
  std::int64_t at = -1;
  for (const auto& range : part.missing()) {
    LOCKSTEP_CHECK(range.first > at && range.first % kBlock == 0, "from ", range.first);
    LOCKSTEP_CHECK(range.end > range.first && range.end <= bytes, "to ", range.end);
    LOCKSTEP_CHECK(range.end % kBlock == 0 || range.end == bytes, "to ", range.end);
    at = range.end;
  }
}

Seeds seeds() {
  return {std::string("\x05lockstep part 1\n\x13", 18),
          std::string("\x10lockstep part 1\n\0\xff", 19), std::string("\x01", 1)};
}

const Target target("part_file", seeds, check);

}  // namespace lockstep::fuzz::part_file_fuzz
