// Any .part file of a cache is begun anew, or what it lacks is whole blocks in order. The first
// byte of the input is the blocks of the shard, which is a hole of 100 bytes less, the rest stands
// behind.
#include <fcntl.h>

#include "data/cache_directory.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr auto kBlock = PartFile::kBlockBytes;

void check(const std::filesystem::path& path, std::int64_t bytes) {
  const PartFile part("/nonexistent/fuzz", Descriptor(open(path.c_str(), O_RDWR)), bytes);
  std::int64_t at = -1;
  for (const auto& range : part.missing()) {
    LOCKSTEP_CHECK(range.first > at && range.first % kBlock == 0, "from ", range.first);
    LOCKSTEP_CHECK(range.end > range.first && range.end <= bytes, "to ", range.end);
    LOCKSTEP_CHECK(range.end % kBlock == 0 || range.end == bytes, "to ", range.end);
    at = range.end;
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {std::string("\x05lockstep part 1\n\x13", 18),
          std::string("\x10lockstep part 1\n\0\xff", 19), std::string("\x01", 1)};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lockstep::fuzz::MemoryFile file;
  if (size == 0 || data[0] == 0) return 0;
  const auto bytes = data[0] * lockstep::PartFile::kBlockBytes - 100;
  file.set(data, 0);
  const lockstep::Descriptor whole(open(file.path().c_str(), O_RDWR));
  if (pwrite(whole.number(), data + 1, size - 1, bytes) < 0) return 0;
  try {
    lockstep::fuzz::check(file.path(), bytes);
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
