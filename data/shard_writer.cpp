#include "data/shard_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Header = std::array<std::int32_t, kShardHeaderBytes / 4>;

Header header_of(std::int64_t tokens) {
  return {kShardMagicU16, kShardVersionU16, static_cast<std::int32_t>(tokens)};
}

std::string shard_name(const std::string& name, std::size_t index) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%06zu.bin", index);
  return name + digits;
}

}  // namespace

// Of one shard that is being filled.
struct ShardWriter::Open {
  Open(const fs::path& directory, std::string name)
      : tokens(directory / name), ends(directory / ends_name(name)) {
    about.file = std::move(name);
  }
  Manifest::Shard about;
  WriteFile tokens, ends;
  Hasher tokens_hash, ends_hash;
};

ShardWriter::ShardWriter(fs::path directory, std::string name, std::int64_t shard_tokens)
    : directory_(std::move(directory)), name_(std::move(name)), shard_tokens_(shard_tokens) {
  LOCKSTEP_CHECK(1 <= shard_tokens && shard_tokens <= std::numeric_limits<std::int32_t>::max(),
                 "shards of ", shard_tokens, " tokens, but their header counts in 31 bits");
}

void ShardWriter::add(std::span<const std::uint16_t> tokens, std::span<const std::int64_t> ends) {
  while (!tokens.empty()) {
    if (!open_) start_shard();
    Open& shard = *open_;
    const auto count = std::min<std::int64_t>(shard_tokens_ - shard.about.tokens,
                                              static_cast<std::int64_t>(tokens.size()));
    const auto bytes = std::as_bytes(tokens.first(static_cast<std::size_t>(count)));
    shard.tokens_hash.add(bytes);
    shard.tokens.write(bytes);
    shard.about.tokens += count;
    tokens = tokens.subspan(static_cast<std::size_t>(count));
    std::vector<std::uint64_t> here;
    for (; !ends.empty() && ends.front() <= written_ + shard.about.tokens; ends = ends.subspan(1))
      here.push_back(static_cast<std::uint64_t>(ends.front() - written_));
    shard.ends_hash.add(std::as_bytes(std::span(here)));
    shard.ends.write(std::as_bytes(std::span(here)));
    shard.about.documents += static_cast<std::int64_t>(here.size());
    if (shard.about.tokens == shard_tokens_) finish_shard();
  }
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::start_shard() {
  open_ = std::make_unique<Open>(directory_, shard_name(name_, started_++));
  const auto header = header_of(shard_tokens_);  // as if it will be full
  open_->tokens_hash.add(std::as_bytes(std::span(header)));
  open_->tokens.write(std::as_bytes(std::span(header)));
}

// Hands the shard to a thread that syncs it. One at a time: the disk is the bound.
void ShardWriter::finish_shard() {
  take_committed();
  written_ += open_->about.tokens;
  const bool full = open_->about.tokens == shard_tokens_;
  committing_ =
      std::async(std::launch::async, [open = std::move(open_), full, directory = directory_] {
        open->about.ends_hash = open->ends_hash.hex();
        open->ends.commit();
        if (!full) {
          const auto header = header_of(open->about.tokens);
          open->tokens.write_at(std::as_bytes(std::span(header)), 0);
        }
        open->tokens.commit();
        open->about.hash =
            full ? open->tokens_hash.hex() : hash_of_file(directory / open->about.file);
        return open->about;
      });
}

void ShardWriter::take_committed() {
  if (committing_.valid()) manifest_.shards.push_back(committing_.get());
}

Manifest ShardWriter::finish(const TokenFormat& format, const std::string& tokenizer_hash) {
  if (open_) finish_shard();
  take_committed();
  manifest_.format = format;
  manifest_.tokenizer_hash = tokenizer_hash;
  write_text(directory_ / kManifestName, manifest_.dump());
  return manifest_;
}

}  // namespace lockstep
