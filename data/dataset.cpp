#include "data/dataset.h"

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "data/source.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostFilesOfShard = 3;  // tokens, ends, mask

constexpr std::int64_t kAnyId = std::int64_t{1} << 31;

}  // namespace

Dataset::Dataset(const std::vector<std::string>& paths, ShardFiles* files, std::size_t most_open)
    : files_(files == nullptr ? &local_files_ : files) {
  if (paths.empty()) throw DataError("a dataset needs at least one path");
  std::string fingerprints;
  for (const auto& path : paths) {
    add(list_shards(path, *files_));
    fingerprint_ = lists_.back().fingerprint;
    fingerprints += fingerprint_ + '\n';
  }
  if (paths.size() > 1) fingerprint_ = hash_hex(fingerprints);
  room_.emplace(kMostFilesOfShard, kMostFilesOfShard * std::min(most_open, shards()));
  const auto most = room_->count() / kMostFilesOfShard;
  open_ = std::make_unique<OpenShards>(most, [this](std::size_t i) { return open(i); });
}

void Dataset::add(ShardList list) {
  for (const auto& before : lists_)
    check_same_format(before, list);
  for (const auto& shard : list.shards)
    starts_.push_back(tokens() + shard.tokens);
  list_ends_.push_back(shards());
  has_masks_ = has_masks_ || list.has_masks;
  is_distant_ = is_distant_ || is_remote(list.directory.string());
  if (tokenizer_hash_.empty()) tokenizer_hash_ = list.tokenizer_hash;
  if (list.kind == ShardKind::lockstep)
    tokenizer_vocabulary_ = std::max(tokenizer_vocabulary_, list.format.vocabulary);
  if (lists_.empty()) format_ = list.format;
  format_.token_bytes = std::max(format_.token_bytes, list.format.token_bytes);
  const bool all_say = format_.vocabulary > 0 && list.format.vocabulary > 0;
  format_.vocabulary = all_say ? std::max(format_.vocabulary, list.format.vocabulary) : 0;
  lists_.push_back(std::move(list));
}

// Several threads may open different shards at the same time.
Shard Dataset::open(std::size_t i) {
  const auto [in_lists, in_list] = place_of(i);
  const auto& list = lists_[in_lists];
  auto& about = lists_[in_lists].shards[in_list];
  const auto identity = FileIdentity::of(list.path(about));
  auto shard = open_shard(list, about, *files_);
  if (about.identity == FileIdentity{}) about.identity = identity;
  if (identity != FileIdentity{} && identity != about.identity)
    throw DataError(str(shard_path(i),
                        ": the file was replaced or modified since it was first read; restart the "
                        "run with the original dataset"));
  return shard;
}

Dataset::Place Dataset::place_of(std::size_t shard) const {
  const auto list = static_cast<std::size_t>(
      std::upper_bound(list_ends_.begin(), list_ends_.end(), shard) - list_ends_.begin());
  return {list, list == 0 ? shard : shard - list_ends_[list - 1]};
}

std::size_t Dataset::shard_of(std::int64_t token) const {
  const auto above = std::upper_bound(starts_.begin(), starts_.end(), token);
  return static_cast<std::size_t>(above - starts_.begin()) - 1;
}

std::string Dataset::shard_path(std::size_t shard) const {
  const auto [list, in_list] = place_of(shard);
  return lists_[list].path(lists_[list].shards[in_list]).string();
}

std::vector<std::string> Dataset::files_of(std::size_t shard) const {
  const auto [list, in_list] = place_of(shard);
  return lockstep::files_of(lists_[list], lists_[list].shards[in_list]);
}

// Visits the parts of [first, first + count) in each shard; `at` is relative to `first`.
void Dataset::for_each_part(
    std::int64_t first, std::int64_t count,
    FunctionRef<void(std::size_t, std::int64_t, std::int64_t, std::int64_t)> visit) const {
  LOCKSTEP_CHECK(0 <= first && first <= tokens() - count, "tokens ", first, "+", count, " of ",
                 tokens());
  std::int64_t at = 0;
  for (auto shard = shard_of(first); at < count; ++shard) {
    const auto here = std::min(starts_[shard + 1] - (first + at), count - at);
    visit(shard, first + at - starts_[shard], at, here);
    at += here;
  }
}

void Dataset::read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const {
  const auto most = vocabulary == 0 ? kAnyId : vocabulary;
  for_each_part(first, std::ssize(out),
                [&](std::size_t shard, std::int64_t in_shard, std::int64_t at, std::int64_t count) {
                  const auto part =
                      out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
                  const auto own = lists_[place_of(shard).list].format.vocabulary;
                  open_->use(shard)->file.read(part, in_shard,
                                               own == 0 ? most : std::min(own, most));
                });
}

void Dataset::read_mask(std::span<std::uint8_t> out, std::int64_t first) const {
  std::ranges::fill(out, std::uint8_t{1});
  if (!has_masks_) return;
  for_each_part(first, std::ssize(out),
                [&](std::size_t shard, std::int64_t in_shard, std::int64_t at, std::int64_t count) {
                  if (!lists_[place_of(shard).list].has_masks) return;
                  const auto part =
                      out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
                  open_->use(shard)->mask->read(part, in_shard);
                });
}

void Dataset::find_documents(std::span<std::int32_t> document_start,
                             std::span<const std::int32_t> tokens, std::int64_t first) const {
  std::fill(document_start.begin(), document_start.end(), 0);
  const auto count = std::ssize(document_start);
  const auto mark = [&](std::int64_t at) {
    if (at < count) document_start[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(at);
  };
  const auto behind = format().boundary == Boundary::behind ? 1 : 0;
  if (format().boundary != Boundary::none)
    for_each_part(first, count,
                  [&](std::size_t shard, std::int64_t in_shard, std::int64_t at, std::int64_t n) {
                    if (lists_documents(shard))
                      return visit_ends(shard, in_shard, in_shard + n,
                                        [&](std::int64_t end) { mark(at + end - in_shard); });
                    for (auto i = at; i < at + n; ++i)
                      if (tokens[static_cast<std::size_t>(i)] == format().boundary_token)
                        mark(i + behind);
                  });
  std::int32_t start = 0;
  for (auto& s : document_start)
    start = s = std::max(s, start);
}

// Whether the shard lists its documents; otherwise tokens separate them. For Lockstep shards only
// the list counts, because text may contain any token.
bool Dataset::lists_documents(std::size_t shard) const {
  return lists_[place_of(shard).list].kind != ShardKind::plain;
}

// Visits the document ends e with first < e <= last, in tokens of the shard.
void Dataset::visit_ends(std::size_t shard, std::int64_t first, std::int64_t last,
                         FunctionRef<void(std::int64_t end)> visit) const {
  open_->use(shard)->ends->for_each_within(first, last, visit);
}

// Visits each document end except the last, in tokens of the dataset; an end may be visited twice.
void Dataset::for_each_end(FunctionRef<void(std::int64_t end)> visit) const {
  if (format().boundary == Boundary::none) return;
  constexpr std::size_t kAhead = 64;
  for (std::size_t i = 0; i < shards(); ++i) {
    if (is_distant_ && i % (kAhead / 2) == 0) {
      std::vector<std::string> ahead;
      for (auto next = i; next < std::min(i + kAhead, shards()); ++next)
        ahead.push_back(files_of(next)[1]);
      files_->set_ahead(this, ahead);
    }
    list_ends(i, visit);
  }
  if (is_distant_) files_->set_ahead(this, {});
}

// Visits the ends of one shard. Reads tokens only without a list.
void Dataset::list_ends(std::size_t shard, FunctionRef<void(std::int64_t end)> visit) const {
  const auto [list, in_list] = place_of(shard);
  const auto visit_here = [&](std::int64_t end) { visit(starts_[shard] + end); };
  switch (lists_[list].kind) {
    case ShardKind::plain: return scan_for_ends(shard, visit);
    case ShardKind::lockstep:
      return open_ends(lists_[list], lists_[list].shards[in_list], *files_).for_each(visit_here);
    default: return open_->use(shard)->ends->for_each(visit_here);
  }
}

void Dataset::scan_for_ends(std::size_t shard, FunctionRef<void(std::int64_t end)> visit) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::int64_t behind = format().boundary == Boundary::behind ? 1 : 0;
  const auto end = starts_[shard + 1];
  std::vector<std::int32_t> piece;
  for (auto at = starts_[shard]; at < end; at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, end - at)));
    read(piece, at);
    for (std::size_t i = 0; i < piece.size(); ++i)
      if (piece[i] == format().boundary_token) visit(at + static_cast<std::int64_t>(i) + behind);
  }
}

void Dataset::for_each_document(
    FunctionRef<void(std::int64_t first, std::int64_t end)> visit) const {
  std::int64_t last = 0;
  const auto end_at = [&](std::int64_t end) {
    if (end > last) visit(last, end);
    last = end;
  };
  for_each_end(end_at);
  end_at(tokens());
}

std::string difference_of_tokenizers(const Dataset& a, const Dataset& b) {
  const auto &x = a.tokenizer_hash(), &y = b.tokenizer_hash();
  const auto &f = a.format(), &g = b.format();
  if (!x.empty() && !y.empty())
    return x == y
               ? ""
               : str(g.name, " (", y, ") and ", f.name, " (", x, "); pack both with one tokenizer");
  const auto says = [](const TokenFormat& format) {
    return format.boundary == Boundary::front || format.boundary == Boundary::behind;
  };
  if (!says(f) || !says(g) || f.boundary_token == g.boundary_token) return "";
  return str(g.name, " separates documents by token ", g.boundary_token, ", ", f.name, " by token ",
             f.boundary_token,
             "; `lockstep data convert --tokenizer` records the tokenizer of a dataset");
}

}  // namespace lockstep
