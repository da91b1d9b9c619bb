#include "data/dataset.h"

#include <algorithm>
#include <utility>

#include "core/hash.h"

namespace lockstep {
namespace {

void check_same_format(const TokenFormat& a, const TokenFile& shard) {
  const TokenFormat& b = shard.format();
  if (a.name == b.name && a.vocabulary == b.vocabulary && a.boundary == b.boundary &&
      a.boundary_token == b.boundary_token && a.token_bytes == b.token_bytes)
    return;
  throw DataError(str(shard.file().path().string(), ": ", b.name, " tokens of vocabulary ",
                      b.vocabulary, ", but the shards before it are ", a.name, " of vocabulary ",
                      a.vocabulary));
}

}  // namespace

Dataset::Dataset(const std::vector<std::string>& paths) {
  if (paths.empty()) throw DataError("a dataset of no paths");
  std::string fingerprints;
  for (const auto& path : paths) {
    const auto list = list_shards(path);
    // A shard stays open: reading it later must not depend on what the path then names.
    allow_open_files(2 * (shards_.size() + list.shards.size()));
    for (const auto& shard : list.shards)
      shards_.push_back(open_shard(shard));
    described_ = list.shards.front().about.has_value();
    tokenizer_hash_ = list.tokenizer_hash;
    fingerprint_ = list.fingerprint;
    fingerprints += fingerprint_ + '\n';
  }
  if (paths.size() > 1) fingerprint_ = hash_hex(fingerprints);
  for (const auto& shard : shards_) {
    check_same_format(format(), shard.file);
    starts_.push_back(tokens() + shard.file.tokens());
    auto mask = shard.file.file().path();
    if (mask.replace_extension(".mask"); path_exists(mask)) masks_.emplace_back(mask);
  }
  LOCKSTEP_CHECK(masks_.empty() || masks_.size() == shards_.size(), "some shards without a mask");
}

void Dataset::for_each_document(
    FunctionRef<void(std::int64_t first, std::int64_t end)> visit) const {
  std::int64_t first = 0;
  const auto end_at = [&](std::int64_t end) {
    if (end > first) visit(std::exchange(first, end), end);
  };
  const std::int64_t behind = format().boundary == Boundary::behind ? 1 : 0;
  std::vector<std::int32_t> piece;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    if (const auto& ends = shards_[shard].ends) {
      ends->for_each([&](std::int64_t end) { end_at(starts_[shard] + end); });
      continue;
    }
    constexpr std::int64_t kPiece = 1 << 16;
    for (auto at = starts_[shard]; at < starts_[shard + 1]; at += kPiece) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, starts_[shard + 1] - at)));
      read(piece, at);
      for (std::size_t i = 0; i < piece.size(); ++i)
        if (piece[i] == format().boundary_token) end_at(at + static_cast<std::int64_t>(i) + behind);
    }
  }
  end_at(tokens());
}

void Dataset::read_mask(std::span<std::uint8_t> out, std::int64_t first) const {
  std::fill(out.begin(), out.end(), 1);
  if (!has_masks()) return;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto token = first + static_cast<std::int64_t>(i);
    const auto shard = shard_of(token);
    const auto local = token - starts_[shard];
    std::byte byte{};
    masks_[shard].read(std::span(&byte, 1), local >> 3);
    out[i] = static_cast<std::uint8_t>(std::to_integer<int>(byte) >> (local & 7) & 1);
  }
}

std::size_t Dataset::shard_of(std::int64_t token) const {
  const auto above = std::upper_bound(starts_.begin(), starts_.end(), token);
  return static_cast<std::size_t>(above - starts_.begin()) - 1;
}

void Dataset::read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const {
  const auto count = static_cast<std::int64_t>(out.size());
  LOCKSTEP_CHECK(0 <= first && first <= tokens() - count, "tokens ", first, "+", count, " of ",
                 tokens());
  constexpr auto kAny = std::int64_t{1} << 32;
  const auto own = format().vocabulary == 0 ? kAny : format().vocabulary;
  const auto limit = vocabulary == 0 ? own : std::min(own, vocabulary);
  for (auto shard = shard_of(first); !out.empty(); ++shard) {
    const auto here =
        std::min<std::int64_t>(starts_[shard + 1] - first, static_cast<std::int64_t>(out.size()));
    shards_[shard].file.read(out.first(static_cast<std::size_t>(here)), first - starts_[shard],
                             limit);
    out = out.subspan(static_cast<std::size_t>(here));
    first += here;
  }
}

void Dataset::find_documents(std::span<std::int32_t> document_start,
                             std::span<const std::int32_t> tokens, std::int64_t first) const {
  std::fill(document_start.begin(), document_start.end(), 0);
  if (format().boundary == Boundary::listed) {
    mark_listed_documents(document_start, first);
  } else {
    const std::size_t behind = format().boundary == Boundary::behind ? 1 : 0;
    for (std::size_t i = 1; i < tokens.size(); ++i)
      if (tokens[i - behind] == format().boundary_token)
        document_start[i] = static_cast<std::int32_t>(i);
  }
  std::int32_t start = 0;
  for (auto& s : document_start)
    start = s = std::max(s, start);
}

void Dataset::mark_listed_documents(std::span<std::int32_t> document_start,
                                    std::int64_t first) const {
  const auto last = first + static_cast<std::int64_t>(document_start.size());
  for (auto shard = shard_of(first); shard < shards_.size() && starts_[shard] < last; ++shard) {
    const auto& ends = *shards_[shard].ends;
    const auto local = std::max<std::int64_t>(first - starts_[shard], 0);
    for (auto i = ends.first_after(local); i < ends.count(); ++i) {
      const auto at = starts_[shard] + ends.end(i) - first;
      if (at < 0) ends.file().fail(8 * i, "the ends of documents do not rise");
      if (at >= last - first) break;
      document_start[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(at);
    }
  }
}

}  // namespace lockstep
