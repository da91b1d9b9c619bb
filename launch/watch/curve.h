// Curve: the loss of all steps and the validation loss, drawn in Braille.
#pragma once

#include <string>
#include <vector>

#include "launch/report/buckets.h"
#include "launch/watch/braille.h"
#include "launch/watch/line.h"

namespace lockstep {

class Curve {
 public:
  Curve(const Buckets& steps, int columns, int rows);  // characters, labels included

  std::vector<std::string> lines(Style style) const;  // rows, then a line with step numbers

 private:
  // Losses of the lowest and the highest row.
  struct Range {
    double low = 0, high = 1;
  };
  static Range range_of(const std::vector<Bucket>& buckets);
  static int evaluations(const std::vector<Bucket>& buckets);

  // Text about losses above the highest row; empty: none.
  std::string said_above() const;

  int x_of(const Bucket& bucket) const;
  int y_of(double value) const;
  void draw(Braille& to, Metric metric, bool joined) const;

  const std::vector<Bucket>& buckets_;
  Range range_;
  int labels_, columns_, rows_;
  bool few_;  // few evaluations: each has a character
  Braille loss_, validation_;
};

}  // namespace lockstep
