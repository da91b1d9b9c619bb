// Any file is rejected, or gives the same text for reads in pieces of any size and from any byte.
#include <algorithm>

#include "data/pack/text_source.h"
#include "tests/data/compressed.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::decompress_fuzz {
constexpr std::size_t kMost = std::size_t{1} << 22;  // the limit of text

std::string read(const std::filesystem::path& path, std::size_t piece, std::int64_t from) {
  TextSource source(path);
  if (from > 0) source.skip_to(from);
  std::string text, buffer(piece, '\0');
  while (text.size() < kMost) {
    const auto count = source.read(buffer);
    LOCKSTEP_CHECK(count <= piece, count, " bytes in ", piece);
    text.append(buffer, 0, count);
    if (count < piece) break;
  }
  return text;
}

void check(const std::filesystem::path& path) {
  const auto text = read(path, 65536, 0);
  if (text.size() >= kMost) return;
  const auto half = text.size() / 2;
  LOCKSTEP_CHECK(read(path, 7 + text.size() / 100, 0) == text, "another text");
  LOCKSTEP_CHECK(read(path, 1000, static_cast<std::int64_t>(half)) == text.substr(half),
                 "another rest");
}

Seeds seeds() {
  using namespace lockstep::testing;
  return {"plain text",
          gzip_member("some text"),
          gzip_member("one") + gzip_member("two"),
          zstd_frame("some text"),
          zstd_frame("one") + std::string("\x5a\x2a\x4d\x18\x01\0\0\0x", 9) + zstd_frame("two"),
          zstd_bomb('a', 1'000'000)};
}

const Target target("decompress", seeds, check);

}  // namespace lockstep::fuzz::decompress_fuzz
