// Compressed files for tests, by hand, from blocks that are stored or repeat a byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/data/shards.h"

namespace lockstep::testing {

inline std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

// A member of RFC 1952, in stored blocks of RFC 1951.
inline std::string gzip_member(std::string_view text) {
  std::string bytes("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  constexpr std::size_t kBlock = 65535;
  for (std::size_t at = 0; at == 0 || at < text.size(); at += kBlock) {
    const auto block = text.substr(at, kBlock);
    bytes += at + kBlock >= text.size() ? '\1' : '\0';
    append(bytes, block.size(), 2);
    append(bytes, ~block.size(), 2);
    bytes += block;
  }
  append(bytes, crc32_of(text), 4);
  append(bytes, text.size(), 4);
  return bytes;
}

// A frame of RFC 8878 without a checksum, with a window of 2 MiB.
inline std::string zstd_frame(std::string_view text) {
  std::string bytes("\x28\xb5\x2f\xfd\x00\x58", 6);
  constexpr std::size_t kBlock = 100'000;
  for (std::size_t at = 0; at == 0 || at < text.size(); at += kBlock) {
    const auto block = text.substr(at, kBlock);
    append(bytes, (at + kBlock >= text.size() ? 1 : 0) | block.size() << 3, 3);
    bytes += block;
  }
  return bytes;
}

// A frame that says it is `count` times a byte: a hundred thousand of them in four bytes.
inline std::string zstd_bomb(char byte, std::size_t count) {
  std::string bytes("\x28\xb5\x2f\xfd\x00\x58", 6);
  constexpr std::size_t kBlock = 100'000;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const auto size = std::min(kBlock, count - at);
    append(bytes, (at + kBlock >= count ? 1 : 0) | 1 << 1 | size << 3, 3);
    bytes += byte;
  }
  return bytes;
}

}  // namespace lockstep::testing
