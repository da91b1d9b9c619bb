#include "data/pack/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>

#include "core/file.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFull = 8;  // waiting shards; each has open files

std::string shard_name(const std::string& name, std::int64_t index) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%06lld.bin", static_cast<long long>(index));
  return name + digits;
}

}  // namespace

ShardWriter::ShardWriter(fs::path directory, std::string name, const ShardLayout& layout,
                         const State& from, std::vector<Manifest::Shard> full,
                         BackgroundTask& background)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      layout_(layout),
      state_(from),
      shards_(std::move(full)),
      background_(background) {
  LOCKSTEP_CHECK(
      1 <= layout.shard_tokens && layout.shard_tokens <= std::numeric_limits<std::int32_t>::max(),
      "shards of ", layout.shard_tokens, " tokens, but their header counts in 31 bits");
  LOCKSTEP_CHECK(std::ssize(shards_) == state_.shards, shards_.size(), " full shards, expected ",
                 state_.shards);
  for (const auto& shard : shards_) {
    const ReadFile file(directory_ / shard.file);
    const auto expected = kShardHeaderBytes + layout.token_bytes * shard.tokens;
    if (file.size_bytes() != expected)
      file.fail(file.size_bytes(), str("expected a shard of ", expected, " bytes"));
    written_ += shard.tokens;
  }
  remove_what_is_behind();
  if (state_.tokens > 0) start_shard();
}

// Removes shards that were started after the state; other input may make fewer.
void ShardWriter::remove_what_is_behind() const {
  std::set<std::string> kept;
  for (const auto& shard : shards_)
    kept.insert(shard.file.substr(0, shard.file.size() - 4));
  if (state_.tokens > 0) kept.insert(fs::path(shard_name(name_, state_.shards)).stem());
  for (const auto& path : directory_entries(directory_)) {
    if (!path.filename().string().starts_with(name_ + "_") || kept.contains(path.stem())) continue;
    std::error_code error;
    fs::remove(path, error);
    if (error) fail_io(path, "cannot remove", error.value());
  }
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::start_shard() {
  open_ = std::make_unique<OpenShard>(directory_, shard_name(name_, state_.shards), layout_,
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

// The hashes are those of the current files; the header of the last shard still changes.
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
  shards_.push_back(shard.about);
  ++state_.shards;
  written_ += state_.tokens;
  state_.tokens = state_.documents = state_.mask_byte = 0;
  full_.push_back(std::move(open_));
  if (full_.size() < kMostFull) return;
  background_.wait();  // it may be syncing one of the shards
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

Manifest ShardWriter::finish(Manifest about) {
  background_.wait();
  const bool partial = open_ != nullptr;
  if (partial) {
    open_->write_header(state_.tokens);
    end_shard();
  }
  for (const auto& full : take_full())
    full->commit();
  if (partial) shards_.back().hash = hash_of_file(directory_ / shards_.back().file);
  about.shards = shards_;
  write_text(directory_ / kManifestName, about.dump());
  return about;
}

}  // namespace lockstep
