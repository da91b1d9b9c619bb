// Slices: which elements of a whole tensor a piece holds. A tensor may be cut into parts along one
// dimension (as tensor parallelism cuts matrices), and each part, flattened in row-major order,
// into ranges (as sharding cuts flat buffers). A column of a matrix is thus one piece, not
// thousands of intervals; seen from the whole tensor it is a row of runs.
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

Split unsplit(const Shape& whole);  // one part: everything
std::int64_t part_elements(const Shape& whole, const Split& split, int part);

// The flat range [begin, end) of a part.
struct Piece {
  int part = 0;
  std::int64_t begin = 0, end = 0;
};

// The runs of a piece: ranges of the whole tensor's row-major elements, ascending.
class Runs {
 public:
  Runs(const Shape& whole, const Split& split, const Piece& piece);

  bool done() const { return at_ >= end_; }
  std::int64_t begin() const;                                   // of this run, in the whole
  std::int64_t count() const;                                   // of this run
  std::int64_t in_piece() const { return at_ - piece_begin_; }  // of this run's first element
  void advance(std::int64_t count) { at_ += count; }
  void seek(std::int64_t whole_index);  // to the first element not before it; never backwards

 private:
  std::int64_t row_, stride_, shift_;    // elements of a row: of the part, of the whole, before it
  std::int64_t piece_begin_, at_, end_;  // in the part
};

// Calls visit(in_a, in_b, count) for each run of elements that both pieces hold, in order.
void intersect(Runs a, Runs b,
               FunctionRef<void(std::int64_t in_a, std::int64_t in_b, std::int64_t count)> visit);

}  // namespace lockstep
