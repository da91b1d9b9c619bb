// Decompressor decompresses gzip (RFC 1952) and zstd (RFC 8878) piece by piece. Its memory depends
// only on the format, not on sizes that the file claims.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

class Decompressor {
 public:
  struct Step {
    std::size_t taken = 0, made = 0;  // bytes, from the start of each
    bool ended = false;               // a member or frame ended; another may follow
  };
  virtual ~Decompressor() = default;

  // Reads bytes of `in` and fills `out`, which is not empty. With an empty `in` it writes the
  // output that is left. Throws DataError naming the damage.
  virtual Step step(std::span<const char> in, std::span<char> out) = 0;
};

// gzip by zlib; needs 32 KiB.
std::unique_ptr<Decompressor> gzip_decompressor();
// zstd; needs the window of the frame, at most 8 MiB, or up to 2 GiB if it was compressed with
// `--long`.
std::unique_ptr<Decompressor> zstd_decompressor();

// Chooses by the first bytes of a file; null if it is not compressed.
std::unique_ptr<Decompressor> decompressor_for(std::string_view first_bytes);
inline constexpr std::size_t kMagicBytes = 4;

}  // namespace lockstep
