// LossMask: which tokens of a shard count in the loss when they are predicted: a bit a token, token
// t bit t % 8 of byte t / 8 (Lockstep's NAME.mask, and behind LLMQ's tokens), or a byte a token
// (datatrove's NAME.ds.loss). 1: it counts.
#pragma once

#include <cstdint>
#include <span>

#include "core/file.h"

namespace lockstep {

class LossMask {
 public:
  enum class Layout : std::uint8_t { bits, bytes };

  // From byte `offset` to the end of the file. Throws DataError where that is not a mask of so many
  // tokens, or an unused bit of the last byte is set.
  LossMask(ReadFile file, std::int64_t offset, std::int64_t tokens, Layout layout);

  const ReadFile& file() const { return file_; }

  // out[i]: 1 or 0, of token first + i.
  void read(std::span<std::uint8_t> out, std::int64_t first) const;

 private:
  void read_bits(std::span<std::uint8_t> out, std::int64_t first) const;

  ReadFile file_;
  std::int64_t offset_, tokens_;
  Layout layout_;
};

}  // namespace lockstep
