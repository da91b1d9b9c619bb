#include "checkpoint/slices.h"

#include <algorithm>

namespace lockstep {
namespace {

std::int64_t elements_behind(const Shape& whole, int dim) {
  std::int64_t n = 1;
  for (int i = dim + 1; i < whole.rank; ++i)
    n *= whole[i];
  return n;
}

std::int64_t part_size(const Shape& whole, const Split& split, int part) {
  const std::int64_t size = whole[split.dim], first = std::min(split.step * part, size);
  return std::min(split.step, size - first);
}

}  // namespace

Split unsplit(const Shape& whole) {
  return {0, 1, whole[0]};
}

std::int64_t part_elements(const Shape& whole, const Split& split, int part) {
  std::int64_t n = part_size(whole, split, part);
  for (int i = 0; i < whole.rank; ++i)
    if (i != split.dim) n *= whole[i];
  return n;
}

Runs::Runs(const Shape& whole, const Split& split, const Piece& piece)
    : piece_begin_(piece.begin), at_(piece.begin), end_(piece.end) {
  const std::int64_t behind = elements_behind(whole, split.dim);
  stride_ = whole[split.dim] * behind;
  row_ = part_size(whole, split, piece.part) * behind;
  shift_ = split.step * piece.part * behind;
}

std::int64_t Runs::begin() const {
  return at_ / row_ * stride_ + shift_ + at_ % row_;
}

std::int64_t Runs::count() const {
  return std::min(row_ - at_ % row_, end_ - at_);
}

void Runs::seek(std::int64_t whole_index) {
  const std::int64_t rows = whole_index / stride_;
  const std::int64_t in_row = std::clamp<std::int64_t>(whole_index % stride_ - shift_, 0, row_);
  at_ = std::max(at_, rows * row_ + in_row);
}

void intersect(Runs a, Runs b,
               FunctionRef<void(std::int64_t in_a, std::int64_t in_b, std::int64_t count)> visit) {
  while (!a.done() && !b.done()) {
    const std::int64_t first = std::max(a.begin(), b.begin());
    a.seek(first);
    b.seek(first);
    if (a.done() || b.done()) return;
    if (a.begin() != b.begin()) continue;
    const std::int64_t count = std::min(a.count(), b.count());
    visit(a.in_piece(), b.in_piece(), count);
    a.advance(count);
    b.advance(count);
  }
}

}  // namespace lockstep
