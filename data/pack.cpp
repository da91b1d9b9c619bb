#include "data/pack.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/mix.h"
#include "data/order.h"
#include "data/progress.h"
#include "data/shard_writer.h"
#include "data/text_source.h"
#include "data/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 18;
constexpr std::size_t kBlockTokens = std::size_t{1} << 19;  // 1 MiB: written while in the cache
constexpr std::size_t kBlocks = 8;                          // between the two threads

// Tokens of one split on their way to its shards, and the ends of documents among them.
struct Block {
  std::size_t split = 0;
  std::vector<std::uint16_t> tokens;
  std::vector<std::int64_t> ends;
};

// Carries blocks to a thread that writes them. What it throws reaches the caller of the next call.
class BlockWriter {
 public:
  explicit BlockWriter(std::vector<std::unique_ptr<ShardWriter>>& splits) : splits_(splits) {
    for (std::size_t i = 0; i < kBlocks; ++i)
      free_.push_back(std::make_unique<Block>());
    thread_ = std::thread([this] { serve(); });
  }
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;
  ~BlockWriter() { stop(); }

  std::unique_ptr<Block> take_free() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || !free_.empty(); });
    if (error_) std::rethrow_exception(error_);
    auto block = std::move(free_.back());
    free_.pop_back();
    return block;
  }

  void write(std::unique_ptr<Block> block) {
    const std::lock_guard lock(mutex_);
    full_.push_back(std::move(block));
    changed_.notify_all();
  }

  void finish() {
    stop();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !full_.empty(); });
      if (full_.empty()) return;
      auto block = std::move(full_.front());
      full_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        splits_[block->split]->add(block->tokens, block->ends);
      } catch (...) {
        error = std::current_exception();
      }
      block->tokens.clear();
      block->ends.clear();
      lock.lock();
      if (error && !error_) error_ = error;
      if (error) return changed_.notify_all();
      free_.push_back(std::move(block));
      changed_.notify_all();
    }
  }

  std::vector<std::unique_ptr<ShardWriter>>& splits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Block>> free_;
  std::deque<std::unique_ptr<Block>> full_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

// Turns documents into blocks of tokens. A block is handed over only when the next token needs
// room, so that the end of a document is always in the block of its last token.
class Documents {
 public:
  Documents(BlockWriter& writer, double validation_share)
      : writer_(writer), validation_share_(validation_share) {}

  void add(std::span<const char> bytes) {
    if (bytes.empty()) return;
    if (!inside_) begin();
    Split& split = splits_[current_];
    while (!bytes.empty()) {
      auto& tokens = room_in(split).tokens;
      const auto n = std::min(bytes.size(), kBlockTokens - tokens.size());
      const auto* first = reinterpret_cast<const unsigned char*>(bytes.data());
      tokens.insert(tokens.end(), first, first + n);
      split.count += static_cast<std::int64_t>(n);
      bytes = bytes.subspan(n);
    }
  }

  void end() {
    if (!inside_) return;
    inside_ = false;
    Split& split = splits_[current_];
    split.block->ends.push_back(split.count);
    ++split.documents;
  }

  void finish() {
    for (Split& split : splits_)
      if (split.block) writer_.write(std::move(split.block));
  }

  std::int64_t documents(std::size_t split) const { return splits_[split].documents; }

 private:
  struct Split {
    std::unique_ptr<Block> block;
    std::int64_t count = 0, documents = 0;  // tokens, documents so far
  };

  void begin() {
    inside_ = true;
    const auto index = splits_[0].documents + splits_[1].documents;
    current_ = is_validation(index, validation_share_) ? 1 : 0;
    Split& split = splits_[current_];
    room_in(split).tokens.push_back(ByteTokenizer::kDocumentToken);
    ++split.count;
  }

  Block& room_in(Split& split) {
    if (split.block && split.block->tokens.size() == kBlockTokens)
      writer_.write(std::move(split.block));
    if (!split.block) {
      split.block = writer_.take_free();
      split.block->split = static_cast<std::size_t>(&split - splits_.data());
      split.block->tokens.reserve(kBlockTokens);
    }
    return *split.block;
  }

  BlockWriter& writer_;
  double validation_share_;
  std::array<Split, 2> splits_;
  std::size_t current_ = 0;
  bool inside_ = false;
};

// One file: `buffer` holds what was read and may begin a separator, and behind it what is read
// next.
void read_documents(TextSource& source, const std::string& separator, Documents& documents,
                    Progress& progress) {
  std::vector<char> buffer(kReadBytes + separator.size());
  std::size_t kept = 0;
  for (;;) {
    const auto n = source.read(std::span(buffer).subspan(kept, kReadBytes));
    progress.advance(static_cast<std::int64_t>(n));
    std::span<const char> text = std::span(buffer).first(kept + n);
    while (!separator.empty()) {
      const void* found = memmem(text.data(), text.size(), separator.data(), separator.size());
      if (found == nullptr) break;
      const auto length = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
      documents.add(text.first(length));
      documents.end();
      text = text.subspan(length + separator.size());
    }
    const bool last = n < kReadBytes;
    kept = last || separator.empty() ? 0 : std::min(text.size(), separator.size() - 1);
    documents.add(text.first(text.size() - kept));
    if (last) return documents.end();
    std::memmove(buffer.data(), text.data() + text.size() - kept, kept);
  }
}

// A run that was killed could not remove what it wrote.
void warn_of_leftovers(const fs::path& out) {
  const auto parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(out.filename().string() + ".tmp-"))
      log_warning(it->path().string(),
                  ": left by a run that was stopped, unless one is writing it "
                  "now; it may be removed");
}

// A directory beside `out` that takes its name at the end, or goes.
class OutputDirectory {
 public:
  explicit OutputDirectory(const fs::path& out)  // delegates: what it throws leaves nothing behind
      : OutputDirectory(out, str(out.string(), ".tmp-", getpid())) {
    if (path_exists(out_) && !(directory_exists(out_) && directory_entries(out_).empty()))
      throw UsageError(str(out_.string(), ": exists; remove it, or choose another directory"));
    warn_of_leftovers(out_);
    make_directories(temporary_);
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }

  const fs::path& path() const { return temporary_; }
  fs::path subdirectory(const char* name) const {
    make_directories(temporary_ / name);
    return temporary_ / name;
  }
  void commit() {
    rename_durably(temporary_, out_);
    temporary_.clear();
  }

 private:
  OutputDirectory(fs::path out, fs::path temporary)
      : out_(std::move(out)), temporary_(std::move(temporary)) {}

  fs::path out_, temporary_;
};

// The output's path with its name at the end: `d/` names d.
fs::path output_path(const fs::path& out) {
  const auto normal = out.lexically_normal();
  auto path = normal.has_filename() ? normal : normal.parent_path();
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..")
    throw UsageError(str(out.string(), ": expected the name of a directory to make"));
  return path;
}

// A second run would pack the first one's shards.
void refuse_output_inside_input(const fs::path& out, const std::vector<fs::path>& inputs) {
  std::error_code unknown;
  const auto whole = fs::weakly_canonical(fs::absolute(out), unknown);
  for (const auto& input : inputs) {
    if (!fs::is_directory(input, unknown)) continue;
    const auto directory = fs::canonical(input, unknown);
    if (std::mismatch(directory.begin(), directory.end(), whole.begin(), whole.end()).first ==
        directory.end())
      throw UsageError(str(out.string(), ": lies inside the input directory ", input.string()));
  }
}

void check_split(const Documents& documents, const PackOptions& options) {
  const auto train = documents.documents(0), validation = documents.documents(1);
  if (train + validation == 0) throw DataError("the input holds no text");
  if (options.validation_share == 0 || (train > 0 && validation > 0)) return;
  throw DataError(str("--validation holds out whole documents, and ",
                      100 * options.validation_share, "% of ", train + validation,
                      " leaves one side empty; hold out a larger share, or say what stands between "
                      "documents: --document-separator '\\n\\n'"));
}

}  // namespace

bool is_validation(std::int64_t document, double share) {
  const double begin = static_cast<double>(document) * share;
  const double end = static_cast<double>(document + 1) * share;
  for (auto stretch = static_cast<std::uint64_t>(begin); static_cast<double>(stretch) < end;
       ++stretch) {
    const auto hash = mix64(stretch + 1);
    const double point = static_cast<double>(stretch) + static_cast<double>(hash >> 11) * 0x1p-53;
    if (begin <= point && point < end) return true;
  }
  return false;
}

std::vector<PackedDataset> pack(const PackOptions& options) {
  LOCKSTEP_CHECK(0 <= options.validation_share && options.validation_share < 1, "validation share ",
                 options.validation_share);
  const auto path = output_path(options.out);
  refuse_output_inside_input(path, options.inputs);
  const auto files = text_files(options.inputs);
  OutputDirectory out(path);
  const bool two = options.validation_share > 0;
  std::vector<std::unique_ptr<ShardWriter>> splits;
  for (const char* name : {"train", "validation"})
    if (two || splits.empty())
      splits.push_back(std::make_unique<ShardWriter>(two ? out.subdirectory(name) : out.path(),
                                                     name, options.shard_tokens));
  BlockWriter writer(splits);
  Documents documents(writer, options.validation_share);
  {
    Progress progress("pack", total_bytes(files));
    for (const auto& file : files) {
      TextSource source(file);
      read_documents(source, options.document_separator, documents, progress);
    }
  }
  documents.finish();
  writer.finish();
  check_split(documents, options);
  const TokenFormat format{"bytes",
                           kShardHeaderBytes,
                           2,
                           ByteTokenizer::kVocabulary,
                           Boundary::front,
                           ByteTokenizer::kDocumentToken};
  std::vector<PackedDataset> packed;
  for (std::size_t i = 0; i < splits.size(); ++i)
    packed.push_back({two ? path / (i == 0 ? "train" : "validation") : path,
                      splits[i]->finish(format, ByteTokenizer().about().hash)});
  out.commit();
  return packed;
}

}  // namespace lockstep
