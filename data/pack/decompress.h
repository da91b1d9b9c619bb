// Decompressor: gzip (RFC 1952) and zstd (RFC 8878) undone piece by piece, in memory that depends
// on the format alone, not on what it says of itself.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

class Decompressor {
 public:
  struct Step {
    std::size_t taken = 0, made = 0;  // bytes, from the front of each
    bool ended = false;               // a member or frame ends here; another may follow
  };
  virtual ~Decompressor() = default;

  // Takes of `in` and fills `out`, which is not empty. Of no bytes it makes what it still can.
  // Throws DataError saying what is damaged.
  virtual Step step(std::span<const char> in, std::span<char> out) = 0;
};

// gzip, by zlib: 32 KiB.
std::unique_ptr<Decompressor> gzip_decompressor();
// zstd: the window that a frame asks for, which is 8 MiB at most but where `--long` made it larger,
// up to 2 GiB.
std::unique_ptr<Decompressor> zstd_decompressor();

// By the first bytes of a file; null where it is not compressed.
std::unique_ptr<Decompressor> decompressor_for(std::string_view first_bytes);
inline constexpr std::size_t kMagicBytes = 4;

}  // namespace lockstep
