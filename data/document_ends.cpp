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
    file_.fail(8 * i, str("document ends at token ", value, " of a shard of ", shard_tokens_));
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
        file_.fail(8 * i, str("a document ends at token ", end, ", the one before at ", last));
      visit(end);
      last = end;
    }
  }
}

std::int64_t DocumentEnds::first_after(std::int64_t token) const {
  std::int64_t low = 0, high = count();
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (end(middle) > token)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace lockstep
