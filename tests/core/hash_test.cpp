#include "core/hash.h"

#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::hash_test {

// Expected values are the output of xxh128sum 0.8.1.
TEST(Hash, equals_the_published_program) {
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_hex("lockstep"), "b4ead11c934f0a1e75345b2b871d8c38");
  EXPECT_EQ(hash_hex(std::string(200, 'x')), "062dfbe359870f1a0f7bed28ebd8500d");
  EXPECT_EQ(hash_hex(std::string(1000000, 'x')), "408b717d132ab248ef02eeb2d3625399");
}

TEST(Hash, does_not_depend_on_the_sizes_of_pieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += static_cast<char>(i * i >> 3);
  for (const std::size_t piece : {1u, 63u, 64u, 255u, 256u, 1024u, 4999u}) {
    Hasher hasher;
    for (std::size_t at = 0; at < text.size(); at += piece)
      hasher.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    EXPECT_EQ(hasher.hex(), hash_hex(text)) << piece;
  }
}

TEST(Hash, of_a_file_covers_all_its_bytes) {
  const testing::TemporaryDirectory directory;
  for (const std::size_t size : {0u, 1u, (1u << 20) - 1, 1u << 20, 3'000'000u}) {
    std::string bytes(size, 'x');
    if (size > 0) bytes.back() = 'y';
    testing::spit(directory / "file", bytes);
    EXPECT_EQ(hash_of_file(directory / "file"), hash_hex(bytes)) << size;
  }
}

}  // namespace lockstep::hash_test
