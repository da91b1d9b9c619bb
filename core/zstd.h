// Zstd compresses and decompresses with zstd (RFC 8878).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

std::vector<std::byte> zstd_compressed(std::span<const std::byte> bytes);
// Throws DataError if the bytes are damaged or hold more than `most` bytes.
std::vector<std::byte> zstd_decompressed(std::span<const std::byte> bytes, std::size_t most);

// ZstdReader decompresses a stream of frames piece by piece.
class ZstdReader {
 public:
  struct Step {
    std::size_t taken = 0, made = 0;  // bytes, from the start of each
    bool ended = false;               // a frame ended
  };
  ZstdReader();
  ~ZstdReader();

  // Reads bytes of `in` and fills `out`. Throws DataError naming the damage.
  Step step(std::span<const char> in, std::span<char> out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lockstep
