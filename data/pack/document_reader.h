// DocumentReader: text files cut into documents, batch by batch, in memory that does not depend on
// how long they are.
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

// The longest line, and the longest text in which no place is known where it may be cut.
inline constexpr std::size_t kMostDocumentBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMostSeparatorBytes = std::size_t{1} << 16;

// A file whose lines are JSON: called *.jsonl, *.ndjson or *.jl, compressed or not, or *.json.gz,
// .zst; in letters of any case.
bool is_called_json_lines(const std::filesystem::path& path);

class DocumentReader {
 public:
  struct Config {
    std::vector<std::filesystem::path> files;
    std::string separator;        // of documents in text; empty: one a file
    bool all_json_lines = false;  // else those that are called so
    bool plain_text = false;      // JSON and tables are text too
  };
  // From `start`, where a batch ended once. `tokenizer` knows where documents may be cut.
  DocumentReader(Config config, const Tokenizer& tokenizer, const InputPosition& start,
                 Progress& progress);

  // Puts the next pieces, if any, into `batch`, which is clear; false behind the last. A document
  // of text without bytes, and an empty line, are left out. Throws DataError naming file and byte,
  // and where a file is no text, ends with zero bytes, or is text that is meant for programs: JSON,
  // tables.
  bool fill(TextBatch& batch);

  bool is_json_lines(std::int64_t file) const;

  // What was read of text, not lines of JSON: files, separators, whether lines end with \r\n.
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
  InputPosition position_;  // of the batch's byte `begin_`; the last of `read` is in hash_ yet
  Hasher hash_;             // of the text from begin_of_hash_ on, up to the batch's byte `hashed_`
  std::int64_t begin_of_hash_ = 0;
  std::size_t hashed_ = 0;
  std::string separator_;  // of the file that is open
  std::optional<TextSource> source_;
  Seen seen_;
  bool is_new_ = false;     // of which nothing was read
  std::int64_t zeros_ = 0;  // at the end of what was read of it
  std::int64_t taken_ = 0;  // of it, as progress was told
  std::vector<char> carried_;
  std::size_t begin_ = 0, scanned_ = 0;  // of the batch's text: not in pieces, without separators
};

}  // namespace lockstep
