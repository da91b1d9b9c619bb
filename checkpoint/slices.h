// Slices map a piece to the elements of its whole tensor. A tensor may be split into parts along
// one dimension (tensor parallelism splits matrices). Each part, flattened in row-major order, may
// be split into ranges (FSDP shards flat buffers). A column of a matrix is thus one piece instead
// of thousands of intervals; in the whole tensor it is a sequence of runs.
#pragma once

#include <cstdint>

#include "core/function_ref.h"
#include "core/tensor.h"

namespace lockstep {

// The parts [p step, min((p + 1) step, size)) of dimension `dim`, p in [0, parts).
struct Split {
  int dim = 0;
  int parts = 1;
  std::int64_t step = 0;
  friend bool operator==(const Split&, const Split&) = default;
};

Split unsplit(const Shape& whole);  // one part with all elements
std::int64_t part_elements(const Shape& whole, const Split& split, int part);

// The flat range [begin, end) of a part.
struct Piece {
  int part = 0;
  std::int64_t begin = 0, end = 0;
};

// Runs iterates over the runs of a piece, which are ascending ranges of row-major elements of the
// whole tensor.
class Runs {
 public:
  Runs(const Shape& whole, const Split& split, const Piece& piece);

  bool done() const { return at_ >= end_; }
  std::int64_t begin() const;                                   // start of this run in the whole
  std::int64_t count() const;                                   // elements of this run
  std::int64_t in_piece() const { return at_ - piece_begin_; }  // start of this run in the piece
  void advance(std::int64_t count) { at_ += count; }
  void seek(std::int64_t whole_index);  // moves forward to the first element at or after it

 private:
  std::int64_t row_, stride_, shift_;    // row elements: in the part, in the whole, before the part
  std::int64_t piece_begin_, at_, end_;  // element indices in the part
};

// Calls visit(in_a, in_b, count) for each run of elements that both pieces hold, in order.
void intersect(Runs a, Runs b,
               FunctionRef<void(std::int64_t in_a, std::int64_t in_b, std::int64_t count)> visit);

}  // namespace lockstep
