// Mixture maps a sample number to one of several weighted sources and to an index within that
// source. It is a function of the sample number, without state.
//
// It uses a Huffman tree of the weights. Of the first n samples of an inner node, its left child
// gets
//   left(n) = floor(n f + 1/2),   f = floor(2^64 w_left / w_node) / 2^64,
// and the right child gets the rest. Since 0 < f < 1, left(n + 1) is left(n) or left(n) + 1. If it
// is left(n) + 1, sample n goes left, as sample left(n) of the child; else it goes right, as sample
// n - left(n). At a leaf that number counts the samples of the source: 0, 1, 2, ... without a gap.
//
// Of the first n samples, a source with the share s gets n s, with an error of at most 2 + n /
// 2^62:
// - A child c of a node p misses its share of p's samples by d = 1/2 + n / 2^64 or less. It also
//   takes its part of p's own error: error(c) <= d + w_c / w_p error(p).
// - A child that is an inner node has at most 2/3 of its parent's weight. When c's own children
//   were joined, they were the two lightest nodes. If c's sibling existed then, it weighed w_c / 2
//   or more. If it came later, it weighed w_c or more, because joined nodes never become lighter.
//   w_c / (w_c + w_c / 2) = 2/3.
// - So the error of an inner node is at most d / (1 - 2/3) = 3 d, and that of a leaf d + 3 d = 4 d.
// A sample takes as many steps as its leaf is deep. The average is less than the entropy of the
// shares in bits plus one, so O(log k) for k sources.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Mixture {
 public:
  // Each weight is at least 1; their sum is at most 2^62.
  explicit Mixture(std::span<const std::int64_t> weights);

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  // index among the samples of the source
  };
  Place at(std::int64_t n) const;  // n >= 0

  // Returns for each source how many of the first n samples it has.
  std::vector<std::int64_t> counts(std::int64_t n) const;

  // Converts shares into weights in units of 2^-53 of their sum, at least 1. `shares` are finite
  // and above 0.
  static std::vector<std::int64_t> weights_of(std::span<const double> shares);

 private:
  struct Node {
    std::uint64_t left_fraction = 0;     // f, times 2^64
    std::array<std::size_t, 2> child{};  // left, right: a source, or sources_ + an inner node
  };
  static std::int64_t left(const Node& node, std::int64_t n);

  std::size_t sources_, root_;
  std::vector<Node> nodes_;
};

}  // namespace lockstep
