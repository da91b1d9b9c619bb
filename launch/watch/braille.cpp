#include "launch/watch/braille.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

Braille::Braille(int columns, int rows)
    : columns_(std::max(columns, 0)),
      rows_(std::max(rows, 0)),
      cells_(static_cast<std::size_t>(columns_ * rows_)) {}

void Braille::dot(int x, int y) {
  if (x < 0 || x >= width() || y < 0 || y >= height()) return;
  // Bits of the dots of a column, from the top (Unicode Standard, "Braille Patterns").
  constexpr unsigned char kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  cells_[static_cast<std::size_t>(y / 4 * columns_ + x / 2)] |= kBits[x % 2][y % 4];
}

void Braille::line(int x0, int y0, int x1, int y1) {
  // Clamps the ends, so that far ends cost no time.
  const auto inside = [](int v, int end) { return std::clamp(v, -1, end); };
  x0 = inside(x0, width()), x1 = inside(x1, width());
  y0 = inside(y0, height()), y1 = inside(y1, height());
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i)
    dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
}

void Braille::add(const Braille& other) {
  for (std::size_t i = 0; i < cells_.size(); ++i)
    cells_[i] |= other.cells_[i];
}

std::string Braille::character(int column, int row) const {
  const unsigned bits = cell(column, row);
  if (bits == 0) return " ";
  const unsigned code = 0x2800 + bits;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace lockstep
