// LossMask says which tokens of a shard count in the loss when they are predicted (1: the token
// counts). Two layouts exist:
// - bits: token t is bit t % 8 of byte t / 8 (NAME.mask of Lockstep, after the tokens of LLMQ).
// - bytes: one byte per token (NAME.ds.loss of datatrove).
#pragma once

#include <cstdint>
#include <span>

#include "core/file.h"

namespace lockstep {

class LossMask {
 public:
  enum class Layout : std::uint8_t { bits, bytes };

  // Reads from byte `offset` to the end of the file. Throws DataError unless that is a mask of
  // `tokens` tokens, or if an unused bit of the last byte is set.
  LossMask(ReadFile file, std::int64_t offset, std::int64_t tokens, Layout layout);

  const ReadFile& file() const { return file_; }

  // Sets out[i] to the mask of token first + i, 1 or 0.
  void read(std::span<std::uint8_t> out, std::int64_t first) const;

 private:
  void read_bits(std::span<std::uint8_t> out, std::int64_t first) const;

  ReadFile file_;
  std::int64_t offset_, tokens_;
  Layout layout_;
};

}  // namespace lockstep
