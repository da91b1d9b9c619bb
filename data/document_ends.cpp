#include "data/document_ends.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

EndsList::EndsList(ReadFile file, std::int64_t count, std::int64_t shard_tokens, Empty empty)
    : file_(std::move(file)), count_(count), shard_tokens_(shard_tokens), empty_(empty) {
  if (file_.size_bytes() % 8 != 0 || file_.size_bytes() / 8 != count)
    file_.fail(file_.size_bytes(), str("expected ", count,
                                       " document ends of 8 bytes, but the file "
                                       "has ",
                                       file_.size_bytes(), " bytes"));
}

std::int64_t EndsList::checked(std::int64_t i, std::uint64_t value) const {
  const std::uint64_t least = empty_ == Empty::left_out ? 0 : 1;
  if (value < least || value > static_cast<std::uint64_t>(shard_tokens_))
    file_.fail(8 * i, str("a document ends at token ", value, ", expected ", least, " to ",
                          shard_tokens_));
  return static_cast<std::int64_t>(value);
}

std::int64_t EndsList::end(std::int64_t i) const {
  std::uint64_t value = 0;
  file_.read(std::as_writable_bytes(std::span(&value, 1)), 8 * i);
  return checked(i, value);
}

void EndsList::for_each(FunctionRef<void(std::int64_t end)> visit) const {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::uint64_t> piece;
  std::int64_t last = 0;
  for (std::int64_t first = 0; first < count_; first += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, count_ - first)));
    file_.read(std::as_writable_bytes(std::span(piece)), 8 * first);
    for (std::size_t j = 0; j < piece.size(); ++j) {
      const auto i = first + static_cast<std::int64_t>(j);
      const auto end = checked(i, piece[j]);
      if (end == last && empty_ == Empty::left_out) continue;
      if (end <= last)
        file_.fail(8 * i, str("a document ends at token ", end,
                              ", but the previous one ends at token ", last));
      visit(end);
      last = end;
    }
  }
}

void EndsList::read(std::int64_t i, std::span<std::int64_t> ends) const {
  file_.read(std::as_writable_bytes(ends), 8 * i);
  for (auto& end : ends)
    end = checked(i++, static_cast<std::uint64_t>(end));
}

void DocumentEnds::read(std::int64_t i, std::span<std::int64_t> ends) const {
  for (auto& at : ends)
    at = end(i++);
}

void DocumentEnds::read(Piece& piece, std::int64_t first, std::int64_t end) const {
  piece.first = first;
  piece.count = std::min(end - first, Piece::kMost);
  const auto ends = std::span(piece.ends).first(static_cast<std::size_t>(piece.count));
  read(first, ends);
  if (const auto falls = std::ranges::is_sorted_until(ends); falls != ends.end())
    file().fail(offset_of(first + (falls - ends.begin())), "document ends do not increase");
}

// Searches in pieces of the list. The first piece is where the end would be if all documents had
// the same length; the others follow by bisection. `piece` contains the result, or the entries just
// before it.
std::int64_t DocumentEnds::first_after(std::int64_t token, Piece& piece) const {
  piece.count = 0;
  std::int64_t low = 0, high = count();
  if (high == 0) return 0;
  const double share =
      static_cast<double>(token) / static_cast<double>(std::max(end(high - 1), std::int64_t{1}));
  auto likely = static_cast<std::int64_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(high));
  while (low < high) {
    const auto begin = std::max(std::min(likely - Piece::kMost / 2, high - Piece::kMost), low);
    read(piece, begin, high);
    const auto ends = std::span(piece.ends).first(static_cast<std::size_t>(piece.count));
    if (ends.back() <= token)
      low = begin + piece.count;
    else if (ends.front() > token && begin > low)
      high = begin;
    else
      return begin + (std::ranges::upper_bound(ends, token) - ends.begin());
    likely = low + (high - low) / 2;
  }
  return low;
}

std::int64_t DocumentEnds::first_after(std::int64_t token) const {
  Piece piece;
  return first_after(token, piece);
}

void DocumentEnds::for_each_within(std::int64_t first, std::int64_t last,
                                   FunctionRef<void(std::int64_t end)> visit) const {
  Piece piece;
  auto before = first;
  for (auto i = first_after(first, piece); i < count(); ++i) {
    if (i < piece.first || i >= piece.first + piece.count) read(piece, i, count());
    const auto end = piece.ends[static_cast<std::size_t>(i - piece.first)];
    if (end < before) file().fail(offset_of(i), "document ends do not increase");
    if (end > last) break;
    visit(end);
    before = end;
  }
}

}  // namespace lockstep
