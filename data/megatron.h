// MegatronIndex: the NAME.idx beside the tokens NAME.bin of Megatron-LM's indexed datasets:
// "MMIDIDX" and two zeros, u64 version 1, u8 type of the tokens, u64 sequences S, u64 documents + 1
// = D, and from byte 34, unaligned: i32 length[S] in tokens, i64 offset[S] in bytes, i64
// document[D], each the first sequence of a document, the last S. Source: Megatron-LM,
// megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>

#include "data/document_ends.h"
#include "data/token_file.h"

namespace lockstep {

class MegatronIndex final : public DocumentEnds {
 public:
  // Looks at the header, the size, and the ends of the lists. Throws DataError for tokens that are
  // no integers, and for modes (multimodal data).
  explicit MegatronIndex(ReadFile file);

  // Reads all of it. Throws DataError, naming sequence or document and byte, unless sequences
  // follow one another in the .bin without a gap and documents rise.
  void check() const;

  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }  // in the .bin

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
  std::int64_t token_of(std::int64_t sequence, std::int64_t offset) const;  // its first

  ReadFile file_;
  TokenFormat format_;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  std::int64_t offsets_at_ = 0, documents_at_ = 0;  // where the lists begin, in bytes
};

}  // namespace lockstep
