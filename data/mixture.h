// Mixture: which of several weighted sources a sample is of, and the how-manieth of that source: a
// function of the sample's number, without state.
//
// A Huffman tree of the weights. Of the first n samples of an inner node its left child has
//   left(n) = floor(n f + 1/2),   f = floor(2^64 w_left / w_node) / 2^64,
// and the right child the rest. Since 0 < f < 1, left(n + 1) is left(n) or one more: sample n goes
// left where it is more, as the child's sample left(n), else right, as n - left(n). At a leaf that
// number counts the source's samples: 0, 1, 2, ... without a gap.
//
// Of the first n samples a source with the share s has n s, but for at most 2 + n / 2^62:
// - A child c of a node p misses its share of p's by d = 1/2 + n / 2^64 or less, and of p's own
//   error it takes its part: error(c) <= d + w_c / w_p error(p).
// - A child that is an inner node has at most 2/3 of its parent. When c's own children were joined,
//   they were the two lightest; so if c's sibling was there, it weighed w_c / 2 or more, and if it
//   came later, w_c or more, for what is joined never becomes lighter. w_c / (w_c + w_c / 2) = 2/3.
// - So an inner node's error is at most d / (1 - 2/3) = 3 d, and a leaf's d + 3 d = 4 d.
// A sample takes as many steps as its leaf is deep: on average less than one more than the entropy
// of the shares in bits, so O(log k) of k sources.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Mixture {
 public:
  // Weights of at least 1, with a sum of at most 2^62.
  explicit Mixture(std::span<const std::int64_t> weights);

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  // among the source's samples
  };
  Place at(std::int64_t n) const;  // n >= 0

  // Of each source, how many of the first n samples are its.
  std::vector<std::int64_t> counts(std::int64_t n) const;

  // Shares as such weights: of their sum in units of 2^-53, at least 1. `shares`: finite, above 0.
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
