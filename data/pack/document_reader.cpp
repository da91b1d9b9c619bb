#include "data/pack/document_reader.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "data/file_magic.h"
#include "data/input_defects.h"
#include "data/pack/json_line.h"

namespace lockstep {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 17;  // searched while in the CPU cache
constexpr std::size_t kLookedAt = std::size_t{1} << 16;   // start that is checked for text

std::string advice_for(const FileMagic& format, const std::string& file) {
  std::string advice = format.advice;
  if (const auto at = advice.find("FILE"); at != std::string::npos) advice.replace(at, 4, file);
  return advice;
}

// The name of a file in lower case, without the ending of its compression.
struct Called {
  std::string name;
  const char* compression = nullptr;  // ".gz"; null without such an ending

  bool ends_with(std::initializer_list<const char*> endings) const {
    return std::ranges::any_of(endings, [&](const char* end) { return name.ends_with(end); });
  }
};

Called called(const std::filesystem::path& path) {
  Called file{path.filename().string()};
  for (auto& c : file.name)
    if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const char* ending : {".gz", ".zst", ".zstd"})
    if (file.name.ends_with(ending)) {
      file.name.resize(file.name.size() - std::strlen(ending));
      file.compression = ending;
      break;
    }
  return file;
}

// Returns the first character that is not blank, after a byte order mark; 0 if there is none.
char first_letter(std::string_view begin) {
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const auto at = begin.find_first_not_of(" \t\r\n");
  return at == begin.npos ? '\0' : begin[at];
}

// Whether the first line is a JSON object with a member. `cut`: the text continues after `begin`; a
// line that is valid almost to the end counts as an object.
bool begins_with_an_object(std::string_view begin, bool cut) {
  const auto end = begin.find('\n');
  const auto line = begin.substr(0, end);
  if (!line.starts_with('{')) return false;
  const auto key = line.find_first_not_of(" \t\r", 1);
  if (key == std::string_view::npos || line[key] != '"') return false;
  try {
    JsonLine(std::vector<std::string>{}).scan(line);
  } catch (const JsonLine::Problem& problem) {
    constexpr std::size_t kLongestCut = 8;  // bytes of a word, or of a character
    return cut && end == std::string_view::npos && problem.byte + kLongestCut >= line.size();
  }
  return true;
}

}  // namespace

bool is_called_json_lines(const std::filesystem::path& path) {
  const auto file = called(path);
  return file.ends_with({".jsonl", ".ndjson", ".jl"}) ||
         (file.compression != nullptr && file.ends_with({".json"}));
}

DocumentReader::DocumentReader(Config config, const Tokenizer& tokenizer,
                               const InputPosition& start, Progress& progress)
    : config_(std::move(config)), tokenizer_(tokenizer), progress_(progress), position_(start) {
  LOCKSTEP_CHECK(config_.separator.size() <= kMostSeparatorBytes, "a separator of ",
                 config_.separator.size(), " bytes");
  progress_.skip(total_bytes({config_.files.begin(), config_.files.begin() + start.file}));
  if (start.byte == 0) return;
  open_next();
  is_new_ = false;
  begin_of_hash_ = start.byte;
  source_->skip_to(start.byte);
  taken_ = source_->bytes_taken();
  progress_.skip(taken_);
}

bool DocumentReader::is_json_lines(std::int64_t file) const {
  return config_.all_json_lines ||
         is_called_json_lines(config_.files[static_cast<std::size_t>(file)]);
}

void DocumentReader::open_next() {
  source_.emplace(config_.files[static_cast<std::size_t>(position_.file)]);
  is_new_ = true;
  taken_ = zeros_ = 0;
  separator_ = is_json_lines(position_.file) ? "\n" : config_.separator;
}

bool DocumentReader::fill(TextBatch& batch) {
  batch.text.append(carried_);
  carried_.clear();
  if (carried_.capacity() > 4 * kBatchBytes) carried_.shrink_to_fit();
  begin_ = scanned_ = hashed_ = 0;
  for (;;) {
    if (!source_) {
      if (position_.file == static_cast<std::int64_t>(config_.files.size())) break;
      open_next();
    }
    const bool ended = read_more(batch);
    cut_documents(batch);
    if (ended) {
      check_zeros_at_end(batch);
      add_piece(batch, batch.text.size(), true);
      source_.reset();
      position_ = {position_.file + 1, 0, 1, false};
      hash_ = Hasher();
      begin_of_hash_ = 0;
      scanned_ = hashed_ = begin_;
    }
    const auto room = batch.text.rest().size();
    if (room >= kReadBytes) continue;
    if (begin_ == batch.text.size() || !cut_long_document(batch, room)) break;
  }
  carried_.assign(batch.text.data() + begin_, batch.text.data() + batch.text.size());
  hash_up_to_begin(batch);
  batch.behind = position_;
  if (position_.byte > begin_of_hash_)
    batch.behind.read.push_back({position_.byte - begin_of_hash_, hash_.hex()});
  return position_.file < static_cast<std::int64_t>(config_.files.size()) || !batch.pieces.empty();
}

void DocumentReader::hash_up_to_begin(const TextBatch& batch) {
  hash_.add(std::as_bytes(std::span(batch.text.data() + hashed_, begin_ - hashed_)));
  hashed_ = begin_;
}

// Returns true at the end of the file.
bool DocumentReader::read_more(TextBatch& batch) {
  const auto room = batch.text.rest().first(std::min(kReadBytes, batch.text.rest().size()));
  const auto count = source_->read(room);
  const std::string_view text(room.data(), count);
  if (std::exchange(is_new_, false)) check_is_text(batch, text, count < room.size());
  count_zeros(text);
  batch.text.grow_by(count);
  progress_.advance(source_->bytes_taken() - taken_);
  taken_ = source_->bytes_taken();
  return count < room.size();
}

void DocumentReader::count_zeros(std::string_view text) {
  const auto zeros = count_zeros_at_end(text);
  zeros_ = zeros == std::ssize(text) ? zeros_ + zeros : zeros;
}

// Zero bytes that become tokens are counted; zero bytes that separate documents are expected.
void DocumentReader::check_zeros_at_end(TextBatch& batch) {
  const auto file = config_.files[static_cast<std::size_t>(position_.file)].string();
  if (!may_be_zero()) refuse_zeros_at_end(file, source_->offset(), zeros_);
  if (zeros_ > 0 && separator_.find('\0') == std::string::npos)
    batch.odd.zeros.note(str(file, ": ", zeros_at_end(source_->offset(), zeros_)));
}

// Whether zero bytes are allowed: as tokens, or between documents.
bool DocumentReader::may_be_zero() const {
  return !is_json_lines(position_.file) &&
         (dynamic_cast<const ByteTokenizer*>(&tokenizer_) != nullptr ||
          config_.separator.find('\0') != std::string::npos);
}

void DocumentReader::check_is_text(TextBatch& batch, std::string_view begin, bool whole) {
  const auto& path = config_.files[static_cast<std::size_t>(position_.file)];
  const auto refuse = [&](const auto&... what) { throw DataError(str(path.string(), what...)); };
  if (const auto* format = format_instead_of_text(begin); format != nullptr)
    refuse(" is ", format->what, ", not text; ", advice_for(*format, path.string()));
  const auto file = called(path);
  if (file.compression != nullptr && !source_->is_compressed() &&
      !(is_json_lines(position_.file) ? first_letter(begin) == '{' : config_.plain_text))
    refuse(" is named *", file.compression, ", but is neither gzip nor zstd",
           begin.empty() ? ": it is empty" : "",
           "; download or copy it again, or rename it if it is not compressed");
  if (is_json_lines(position_.file)) return;
  const auto looked_at = begin.substr(0, kLookedAt);
  if (const auto zero = looked_at.find('\0'); zero != std::string_view::npos && !may_be_zero()) {
    const bool others = begin.find_first_not_of('\0', zero) != std::string_view::npos;
    if (others || !whole)  // else the error at the end names them
      refuse(" is not text: byte ", zero, " is zero",
             others ? "" : ", and so are the bytes after it",
             "; leave it out, or pack it as bytes: --tokenizer bytes");
  }
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  ++seen_.files;
  seen_.carriage_returns = seen_.carriage_returns || begin.find("\r\n") != std::string_view::npos;
  if (begin.find('\n') == std::string_view::npos && begin.find('\r') != std::string_view::npos)
    batch.odd.returns.note(path.string());
  if (config_.plain_text) return;
  constexpr const char* kAsItStands = "; to train on it as it is, pass --plain-text";
  if (file.ends_with({".csv", ".tsv"}))
    refuse(" is a table; convert its rows to JSON lines and pack those", kAsItStands);
  const bool cut = begin.size() >= kLookedAt;
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  if ((file.ends_with({".json"}) && (begin.starts_with('{') || begin.starts_with('['))) ||
      begins_with_an_object(begin, cut))
    refuse(" holds JSON; if each line is an object, pass --field or rename it to .jsonl",
           kAsItStands);
}

void DocumentReader::cut_documents(TextBatch& batch) {
  if (separator_.empty()) return;
  const auto* text = batch.text.data();
  while (scanned_ < batch.text.size()) {
    const void* found =
        memmem(text + scanned_, batch.text.size() - scanned_, separator_.data(), separator_.size());
    if (found == nullptr) break;
    add_piece(batch, static_cast<std::size_t>(static_cast<const char*>(found) - text), true);
    if (!is_json_lines(position_.file)) ++seen_.separators;
    begin_ += separator_.size();
    position_.byte += static_cast<std::int64_t>(separator_.size());
    ++position_.line;
    scanned_ = begin_;
  }
  // Bytes that may be the start of a separator are searched again.
  const auto whole = batch.text.size() - std::min(batch.text.size(), separator_.size() - 1);
  scanned_ = std::max(begin_, whole);
}

// Adds all text up to `end`, unless it contains nothing of a document.
void DocumentReader::add_piece(TextBatch& batch, std::size_t end, bool last) {
  LOCKSTEP_CHECK(end > begin_ || !position_.inside, "a document without further text");
  if (end > begin_)
    batch.pieces.push_back(
        {begin_, end, position_.byte, position_.line, position_.file, !position_.inside, last});
  position_.byte += static_cast<std::int64_t>(end - begin_);
  position_.inside = !last;
  begin_ = end;
}

// There is little room, and the document continues. Returns false if the batch ends here.
bool DocumentReader::cut_long_document(TextBatch& batch, std::size_t room) {
  const std::size_t size = batch.text.size();
  const bool lines = is_json_lines(position_.file);
  if (!batch.pieces.empty() && (lines || size - begin_ < kBatchBytes / 2)) return false;
  if (!lines) {
    // Leaves one byte of the document for the next batch, which can end it.
    const auto kept = std::max<std::size_t>(separator_.size(), 1);
    const auto length = size - begin_ - std::min(kept, size - begin_);
    const auto cut = tokenizer_.last_cut({batch.text.data() + begin_, length});
    if (cut > 0) {
      add_piece(batch, begin_ + cut, false);
      return false;
    }
    if (!batch.pieces.empty()) return false;
  }
  if (size + room >= kMostDocumentBytes)
    throw DataError(str(config_.files[static_cast<std::size_t>(position_.file)].string(),
                        ": at byte ", position_.byte,
                        lines ? str(", line ", position_.line, ": the line is longer than")
                              : str(": a document has no place to split it within"),
                        " 1 GiB",
                        zeros_ > 0 ? str(", with ", zeros_, " zero bytes at its end") : "",
                        lines && memchr(batch.text.data() + begin_, '\r', size - begin_) != nullptr
                            ? str("; ", kReturnsAlone)
                            : ""));
  batch.text.reserve(std::min(2 * batch.text.capacity(), kMostDocumentBytes + kReadBytes));
  return true;
}

}  // namespace lockstep
