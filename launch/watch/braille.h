// Braille: a drawing of dots; a terminal character has 2 x 4 dots.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

class Braille {
 public:
  Braille(int columns, int rows);  // characters

  int width() const { return 2 * columns_; }  // dots
  int height() const { return 4 * rows_; }

  // x from the left, y from the top; dots outside are ignored.
  void dot(int x, int y);
  void line(int x0, int y0, int x1, int y1);  // both ends included

  bool is_empty(int column, int row) const { return cell(column, row) == 0; }
  std::string character(int column, int row) const;  // UTF-8; a blank without dots
  void add(const Braille& other);                    // adds the dots of a drawing of the same size

 private:
  unsigned char cell(int column, int row) const {
    return cells_[static_cast<std::size_t>(row * columns_ + column)];
  }

  int columns_, rows_;
  std::vector<unsigned char> cells_;
};

}  // namespace lockstep
