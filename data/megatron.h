// MegatronIndex reads the NAME.idx beside the tokens NAME.bin of an indexed dataset of Megatron-LM:
//   bytes 0 to 33  "MMIDIDX" and two zeros, u64 version 1, u8 token type, u64 sequences S,
//                  u64 D = documents + 1
//   from byte 34   unaligned: i32 length[S] in tokens, i64 offset[S] in bytes, i64 document[D]
// document[i] is the first sequence of document i; the last one is S. Source: Megatron-LM,
// megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>

#include "data/document_ends.h"
#include "data/token_file.h"

namespace lockstep {

class MegatronIndex final : public DocumentEnds {
 public:
  // Checks the header, the size, and both ends of the lists. Throws DataError for tokens that are
  // not integers, and for modes (multimodal data).
  explicit MegatronIndex(ReadFile file);

  // Reads the whole index. Throws DataError naming sequence or document and byte unless sequences
  // are contiguous in the .bin and documents increase.
  void check() const;

  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }  // number of tokens in the .bin

  const ReadFile& file() const override { return file_; }
  std::int64_t count() const override { return documents_; }
  std::int64_t offset_of(std::int64_t i) const override { return documents_at_ + 8 * (i + 1); }
  std::int64_t end(std::int64_t i) const override;
  void for_each(FunctionRef<void(std::int64_t end)> visit) const override;

 protected:
  void read(std::int64_t i, std::span<std::int64_t> ends) const override;

 private:
  void read_header();
  void take_tokens();
  void check_sequences() const;
  std::int64_t checked_document(std::int64_t i, std::int64_t sequence) const;
  // Returns the first token of a sequence.
  std::int64_t token_of(std::int64_t sequence, std::int64_t offset) const;

  ReadFile file_;
  TokenFormat format_;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  std::int64_t offsets_at_ = 0, documents_at_ = 0;  // byte offsets of the lists
};

}  // namespace lockstep
