#include "data/pack/shard_output.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/hash.h"
#include "data/datatrove.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// Buffered is a file that is written in small pieces.
class Buffered {
 public:
  explicit Buffered(const fs::path& path) : file_(path), buffer_(kBufferBytes) {}

  template <class Number>
  void put(Number value) {
    if (used_ + sizeof value > kBufferBytes) flush();
    std::memcpy(buffer_.data() + used_, &value, sizeof value);
    used_ += sizeof value;
  }
  void commit() {
    flush();
    file_.commit();
  }
  void commit_with_header(std::span<const std::byte> header) {
    flush();
    file_.write_at(header, 0);
    file_.commit();
  }

 private:
  void flush() {
    file_.write(std::span(buffer_).first(used_));
    used_ = 0;
  }

  WriteFile file_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
};

std::array<std::int32_t, kShardHeaderBytes / 4> header_of(int token_bytes, std::int64_t tokens) {
  return {token_bytes == 2 ? kShardMagicU16 : kShardMagicU32,
          token_bytes == 2 ? kShardVersionU16 : kShardVersionU32,
          static_cast<std::int32_t>(tokens)};
}

std::string numbered(const std::string& name, std::int64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%06lld", static_cast<long long>(number));
  return name + digits;
}

bool has_header(OutputKind kind) {
  return kind == OutputKind::lockstep || kind == OutputKind::llmc;
}
// Whether a document must be in one shard, because each shard lists its documents.
bool keeps_documents_whole(OutputKind kind) {
  return kind == OutputKind::megatron || kind == OutputKind::datatrove;
}

}  // namespace

struct ShardOutput::Open {
  Open(const fs::path& path, std::string file_name)
      : name(std::move(file_name)), file(path / name) {}

  std::string name;
  Buffered file;
  std::int64_t tokens = 0, documents = 0;
  std::optional<Buffered> ends, mask;
  std::uint8_t mask_bits = 0;           // bits of the incomplete byte
  std::vector<std::int32_t> sequences;  // for Megatron: lengths; 0 ends a document
  std::int64_t last_end = 0;
};

ShardOutput::ShardOutput(Config config) : config_(std::move(config)) {
  LOCKSTEP_CHECK(
      1 <= config_.shard_tokens && config_.shard_tokens <= std::numeric_limits<std::int32_t>::max(),
      "shards of ", config_.shard_tokens, " tokens");
  LOCKSTEP_CHECK(config_.format.token_bytes == 2 || config_.format.token_bytes == 4, "tokens of ",
                 config_.format.token_bytes, " bytes");
  manifest_.format = config_.format;
  manifest_.tokenizer_hash = config_.tokenizer_hash;
}

ShardOutput::~ShardOutput() = default;

void ShardOutput::start_shard() {
  const bool is_datatrove = config_.kind == OutputKind::datatrove;
  const auto base =
      config_.kind == OutputKind::nanogpt ? config_.name : numbered(config_.name, shards_);
  open_ = std::make_unique<Open>(config_.directory, base + (is_datatrove ? ".ds" : ".bin"));
  const auto beside = [&](const std::string& name) { return config_.directory / name; };
  if (config_.kind == OutputKind::lockstep) {
    open_->ends.emplace(beside(ends_name(open_->name)));
    if (config_.masks) open_->mask.emplace(beside(mask_name(open_->name)));
  }
  if (is_datatrove) {
    open_->ends.emplace(beside(open_->name + ".index"));
    if (config_.masks) open_->mask.emplace(beside(open_->name + ".loss"));
  }
  if (has_header(config_.kind))
    for (int i = 0; i < kShardHeaderBytes / 4; ++i)
      open_->file.put(std::int32_t{0});  // placeholder for the number of tokens
}

void ShardOutput::add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask) {
  const bool cuts = has_header(config_.kind);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (open_ && cuts && open_->tokens == config_.shard_tokens) finish_shard();
    if (!open_) start_shard();
    Open& shard = *open_;
    if (config_.format.token_bytes == 2)
      shard.file.put(static_cast<std::uint16_t>(tokens[i]));
    else
      shard.file.put(tokens[i]);
    if (shard.mask && config_.kind == OutputKind::datatrove) shard.mask->put(mask[i]);
    if (shard.mask && config_.kind == OutputKind::lockstep) {
      const auto bit = shard.tokens % 8;
      shard.mask_bits = static_cast<std::uint8_t>(shard.mask_bits | mask[i] << bit);
      if (bit == 7) shard.mask->put(std::exchange(shard.mask_bits, std::uint8_t{0}));
    }
    ++shard.tokens;
  }
  tokens_ += std::ssize(tokens);
}

void ShardOutput::end_document() {
  ++documents_;
  if (!open_) return;
  Open& shard = *open_;
  ++shard.documents;
  if (shard.ends) shard.ends->put(static_cast<std::uint64_t>(shard.tokens));
  if (config_.kind == OutputKind::megatron) {
    // The length of a sequence is an i32; a document may have several sequences.
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    for (auto rest = shard.tokens - shard.last_end; rest > 0; rest -= std::min(rest, kMost))
      shard.sequences.push_back(static_cast<std::int32_t>(std::min(rest, kMost)));
    shard.sequences.push_back(0);
    shard.last_end = shard.tokens;
  }
  if (keeps_documents_whole(config_.kind) && shard.tokens >= config_.shard_tokens) finish_shard();
}

void ShardOutput::finish_shard() {
  Open& shard = *open_;
  if (has_header(config_.kind)) {
    const auto header = header_of(config_.format.token_bytes, shard.tokens);
    shard.file.commit_with_header(std::as_bytes(std::span(header)));
  } else {
    shard.file.commit();
  }
  if (shard.ends) shard.ends->commit();
  if (shard.mask) {
    if (config_.kind == OutputKind::lockstep && shard.tokens % 8 != 0)
      shard.mask->put(shard.mask_bits);
    shard.mask->commit();
  }
  const auto path = config_.directory / shard.name;
  if (config_.kind == OutputKind::megatron) write_megatron_index();
  if (config_.kind == OutputKind::datatrove)
    write_text(path.string() + ".metadata",
               datatrove_metadata(config_.format.name, config_.format.token_bytes, shard.tokens));
  if (config_.kind == OutputKind::lockstep) {
    const auto hash = [&](const std::string& name) {
      return hash_of_file(config_.directory / name);
    };
    manifest_.shards.push_back({shard.name, shard.tokens, shard.documents, hash(shard.name),
                                hash(ends_name(shard.name)),
                                shard.mask ? hash(mask_name(shard.name)) : std::string()});
  }
  open_.reset();
  ++shards_;
}

void ShardOutput::write_megatron_index() {
  const Open& shard = *open_;
  constexpr std::int8_t kU16 = 8, kI32 = 4;
  const auto base = shard.name.substr(0, shard.name.size() - 4);
  Buffered index(config_.directory / (base + ".idx"));
  for (const char c : std::string_view("MMIDIDX\0\0", 9))
    index.put(c);
  index.put(std::uint64_t{1});
  index.put(config_.format.token_bytes == 2 ? kU16 : kI32);
  const auto is_length = [](std::int32_t length) { return length > 0; };
  const auto& lengths = shard.sequences;
  index.put(static_cast<std::uint64_t>(std::count_if(lengths.begin(), lengths.end(), is_length)));
  index.put(static_cast<std::uint64_t>(shard.documents + 1));
  for (const auto length : lengths)
    if (is_length(length)) index.put(length);
  std::int64_t offset = 0;
  for (const auto length : lengths) {
    if (is_length(length)) index.put(offset);
    offset += std::int64_t{length} * config_.format.token_bytes;
  }
  std::int64_t sequence = 0;
  index.put(sequence);
  for (const auto length : lengths) {
    if (is_length(length))
      ++sequence;
    else
      index.put(sequence);
  }
  index.commit();
}

void ShardOutput::finish() {
  if (open_) finish_shard();
  if (config_.kind == OutputKind::lockstep)
    write_text(config_.directory / kManifestName, manifest_.dump());
}

}  // namespace lockstep
