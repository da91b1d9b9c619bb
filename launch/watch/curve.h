// Curve: the loss of all steps, from the first to the last, and its validation, drawn in Braille.
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

  std::vector<std::string> lines(Style style) const;  // rows; below, numbers of steps

 private:
  // Of losses: what the highest and the lowest row stand for.
  struct Range {
    double low = 0, high = 1;
  };
  static Range range_of(const std::vector<Bucket>& buckets);
  static int evaluations(const std::vector<Bucket>& buckets);

  // Of losses that lie above the highest row; empty: none do.
  std::string said_above() const;

  int x_of(const Bucket& bucket) const;
  int y_of(double value) const;
  void draw(Braille& to, Metric metric, bool joined) const;

  const std::vector<Bucket>& buckets_;
  Range range_;
  int labels_, columns_, rows_;
  bool few_;  // evaluations: each has a character
  Braille loss_, validation_;
};

}  // namespace lockstep
