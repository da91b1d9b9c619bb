// DocumentReader splits text files into documents, batch by batch. Its memory does not depend on
// their length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "data/pack/progress.h"
#include "data/pack/text_batch.h"
#include "data/pack/text_source.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

// Limit of a line, and of text without a place to split it.
inline constexpr std::size_t kMostDocumentBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMostSeparatorBytes = std::size_t{1} << 16;

// Whether the name means lines of JSON: *.jsonl, *.ndjson or *.jl, compressed or not, or *.json.gz,
// *.json.zst, in upper or lower case.
bool is_called_json_lines(const std::filesystem::path& path);

class DocumentReader {
 public:
  struct Config {
    std::vector<std::filesystem::path> files;
    std::string separator;        // between documents in text; empty: one document per file
    bool all_json_lines = false;  // false: only files with such names
    bool plain_text = false;      // true: accept JSON and tables as text
  };
  // Reads from `start`, which was the end of a batch. `tokenizer` defines where documents may be
  // split.
  DocumentReader(Config config, const Tokenizer& tokenizer, const InputPosition& start,
                 Progress& progress);

  // Puts the next pieces into `batch`, which is cleared; returns false at the end. Empty documents
  // of text and empty lines are left out. Throws DataError naming file and byte. It also throws if
  // a file is not text, ends with zero bytes, or is text for programs (JSON, tables).
  bool fill(TextBatch& batch);

  bool is_json_lines(std::int64_t file) const;

  // Statistics of text, without lines of JSON: files, separators, and whether lines end with \r\n.
  struct Seen {
    std::int64_t files = 0, separators = 0;
    bool carriage_returns = false;
  };
  const Seen& seen() const { return seen_; }

 private:
  void open_next();
  bool read_more(TextBatch& batch);
  void check_is_text(TextBatch& batch, std::string_view begin, bool whole);
  bool may_be_zero() const;
  void count_zeros(std::string_view text);
  void check_zeros_at_end(TextBatch& batch);
  void cut_documents(TextBatch& batch);
  void add_piece(TextBatch& batch, std::size_t end, bool last);
  bool cut_long_document(TextBatch& batch, std::size_t room);
  void hash_up_to_begin(const TextBatch& batch);

  Config config_;
  const Tokenizer& tokenizer_;
  Progress& progress_;
  // Position of byte `begin_` of the batch; the last stretch of `read` is still in hash_.
  InputPosition position_;
  Hasher hash_;  // of the text from begin_of_hash_ to byte `hashed_` of the batch
  std::int64_t begin_of_hash_ = 0;
  std::size_t hashed_ = 0;
  std::string separator_;  // of the open file
  std::optional<TextSource> source_;
  Seen seen_;
  bool is_new_ = false;     // nothing of the file was read yet
  std::int64_t zeros_ = 0;  // zero bytes at the end of the text read so far
  std::int64_t taken_ = 0;  // bytes of the file reported to progress
  std::vector<char> carried_;
  // In the batch: start of the text that is not in pieces, and end of the searched text.
  std::size_t begin_ = 0, scanned_ = 0;
};

}  // namespace lockstep
