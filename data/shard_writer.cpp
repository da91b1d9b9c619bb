#include "data/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "core/file.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFull = 8;  // shards that wait: each has files open

std::string shard_name(const std::string& name, std::size_t index) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%06zu.bin", index);
  return name + digits;
}

}  // namespace

ShardWriter::ShardWriter(fs::path directory, std::string name, const ShardLayout& layout,
                         State from, BackgroundTask& background)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      layout_(layout),
      state_(std::move(from)),
      background_(background) {
  LOCKSTEP_CHECK(
      1 <= layout.shard_tokens && layout.shard_tokens <= std::numeric_limits<std::int32_t>::max(),
      "shards of ", layout.shard_tokens, " tokens, but their header counts in 31 bits");
  for (const auto& shard : state_.shards) {
    const ReadFile file(directory_ / shard.file);
    const auto expected = kShardHeaderBytes + layout.token_bytes * shard.tokens;
    if (file.size_bytes() != expected)
      file.fail(file.size_bytes(), str("expected a shard of ", expected, " bytes"));
    written_ += shard.tokens;
  }
  if (state_.tokens > 0) start_shard();
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::start_shard() {
  open_ = std::make_unique<OpenShard>(directory_, shard_name(name_, state_.shards.size()), layout_,
                                      state_.tokens, state_.documents);
}

void ShardWriter::add(std::span<const std::byte> tokens, std::span<const std::uint8_t> mask,
                      std::span<const std::int64_t> ends) {
  const auto token_bytes = static_cast<std::size_t>(layout_.token_bytes);
  while (!tokens.empty()) {
    if (!open_) start_shard();
    const auto count = std::min(static_cast<std::size_t>(layout_.shard_tokens - state_.tokens),
                                tokens.size() / token_bytes);
    open_->tokens.write(tokens.first(count * token_bytes));
    tokens = tokens.subspan(count * token_bytes);
    if (layout_.masked) {
      add_mask(mask.first(count));
      mask = mask.subspan(count);
    }
    state_.tokens += static_cast<std::int64_t>(count);
    ends_.clear();
    for (; !ends.empty() && ends.front() <= written_ + state_.tokens; ends = ends.subspan(1))
      ends_.push_back(static_cast<std::uint64_t>(ends.front() - written_));
    open_->ends.write(std::as_bytes(std::span(ends_)));
    state_.documents += static_cast<std::int64_t>(ends_.size());
    if (state_.tokens == layout_.shard_tokens) end_shard();
  }
}

void ShardWriter::add_mask(std::span<const std::uint8_t> mask) {
  mask_bytes_.clear();
  auto bit = static_cast<int>(state_.tokens & 7);
  for (const auto counts : mask) {
    state_.mask_byte |= (counts != 0 ? 1 : 0) << bit;
    if (++bit < 8) continue;
    mask_bytes_.push_back(static_cast<std::byte>(state_.mask_byte));
    bit = state_.mask_byte = 0;
  }
  open_->mask->write(mask_bytes_);
}

// The hashes are those of the files as they are now: of the last shard the header changes yet.
void ShardWriter::end_shard() {
  OpenShard& shard = *open_;
  if (shard.mask && state_.tokens % 8 != 0) {
    const auto last = static_cast<std::byte>(state_.mask_byte);
    shard.mask->write(std::span(&last, 1));
  }
  shard.flush();
  shard.about.tokens = state_.tokens;
  shard.about.documents = state_.documents;
  shard.about.hash = shard.tokens.hash();
  shard.about.ends_hash = shard.ends.hash();
  if (shard.mask) shard.about.mask_hash = shard.mask->hash();
  state_.shards.push_back(shard.about);
  written_ += state_.tokens;
  state_.tokens = state_.documents = state_.mask_byte = 0;
  full_.push_back(std::move(open_));
  if (full_.size() < kMostFull) return;
  background_.wait();  // it may be syncing one of them
  for (const auto& full : take_full())
    full->commit();
}

std::vector<std::unique_ptr<OpenShard>> ShardWriter::take_full() {
  return std::exchange(full_, {});
}

const ShardWriter::State& ShardWriter::state() {
  if (open_) open_->flush();
  return state_;
}

Manifest ShardWriter::finish(const TokenFormat& format, const std::string& tokenizer_hash) {
  background_.wait();
  const bool partial = open_ != nullptr;
  if (partial) {
    open_->write_header(state_.tokens);
    end_shard();
  }
  for (const auto& full : take_full())
    full->commit();
  if (partial) state_.shards.back().hash = hash_of_file(directory_ / state_.shards.back().file);
  Manifest manifest{format, tokenizer_hash, state_.shards};
  write_text(directory_ / kManifestName, manifest.dump());
  return manifest;
}

}  // namespace lockstep
