#include "data/document_ends.h"

#include <span>

namespace lockstep {

DocumentEnds::DocumentEnds(const std::filesystem::path& path, std::int64_t count,
                           std::int64_t shard_tokens)
    : file_(path), count_(count), shard_tokens_(shard_tokens) {
  if (file_.size_bytes() % 8 != 0 || file_.size_bytes() / 8 != count)
    file_.fail(file_.size_bytes(), str("expected ", count,
                                       " document ends of 8 bytes, but the file "
                                       "has ",
                                       file_.size_bytes(), " bytes"));
}

std::int64_t DocumentEnds::end(std::int64_t i) const {
  std::uint64_t value = 0;
  file_.read(std::as_writable_bytes(std::span(&value, 1)), 8 * i);
  if (value < 1 || value > static_cast<std::uint64_t>(shard_tokens_))
    file_.fail(8 * i, str("document ends at token ", value, " of a shard of ", shard_tokens_));
  return static_cast<std::int64_t>(value);
}

std::int64_t DocumentEnds::first_after(std::int64_t token) const {
  std::int64_t low = 0, high = count_;
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
