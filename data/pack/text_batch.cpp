#include "data/pack/text_batch.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace lockstep {
namespace {

template <class T>
void clear_or_free(std::vector<T>& values, std::size_t usual) {
  values.clear();
  if (values.capacity() > 4 * usual) values.shrink_to_fit();
}

}  // namespace

void TextBuffer::reserve(std::size_t capacity) {
  LOCKSTEP_CHECK(capacity >= size_, "a buffer of ", size_, " bytes cut to ", capacity);
  auto bytes = std::make_unique_for_overwrite<char[]>(capacity);
  if (size_ > 0) std::memcpy(bytes.get(), bytes_.get(), size_);
  bytes_ = std::move(bytes);
  capacity_ = capacity;
}

void TextBuffer::append(std::span<const char> bytes) {
  if (bytes.size() > capacity_ - size_) reserve(size_ + bytes.size());
  std::copy(bytes.begin(), bytes.end(), rest().begin());
  grow_by(bytes.size());
}

void TextBatch::clear() {
  text.clear();
  if (text.capacity() != kBatchBytes) text.reserve(kBatchBytes);
  clear_or_free(pieces, kBatchBytes / 16);
  clear_or_free(parts, kBatchBytes / 16);
  clear_or_free(narrow, kBatchBytes);
  clear_or_free(wide, kBatchBytes);
  clear_or_free(mask, kBatchBytes);
  odd = {};
  error = nullptr;
}

}  // namespace lockstep
