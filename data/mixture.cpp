#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

Mixture::Mixture(std::span<const std::int64_t> weights)
    : sources_(weights.size()), root_(weights.size()) {
  LOCKSTEP_CHECK(!weights.empty(), "a mixture without sources");
  using Weighted = std::pair<std::uint64_t, std::size_t>;  // among equals the earlier one first
  std::priority_queue<Weighted, std::vector<Weighted>, std::greater<>> lightest;
  std::uint64_t sum = 0;
  for (const auto weight : weights) {
    LOCKSTEP_CHECK(weight >= 1, "a source of weight ", weight);
    sum += static_cast<std::uint64_t>(weight);
    LOCKSTEP_CHECK(weight <= std::int64_t{1} << 62 && sum <= std::uint64_t{1} << 62,
                   "weights with a sum above 2^62");
    lightest.emplace(static_cast<std::uint64_t>(weight), lightest.size());
  }
  const auto take = [&] {
    const auto top = lightest.top();
    lightest.pop();
    return top;
  };
  while (lightest.size() > 1) {
    const auto [left_weight, left_child] = take();
    const auto [right_weight, right_child] = take();
    const auto both = left_weight + right_weight;
    lightest.emplace(both, sources_ + nodes_.size());
    nodes_.push_back(
        {static_cast<std::uint64_t>((Wide{left_weight} << 64) / both), {left_child, right_child}});
  }
  root_ = lightest.top().second;
}

std::int64_t Mixture::left(const Node& node, std::int64_t n) {
  constexpr Wide kHalf = Wide{1} << 63;
  return static_cast<std::int64_t>(
      (Wide{static_cast<std::uint64_t>(n)} * node.left_fraction + kHalf) >> 64);
}

Mixture::Place Mixture::at(std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0, "sample ", n, " of a mixture");
  auto at = root_;
  while (at >= sources_) {
    const Node& node = nodes_[at - sources_];
    const auto before = left(node, n);
    const bool goes_left = left(node, n + 1) > before;
    n = goes_left ? before : n - before;
    at = node.child[goes_left ? 0 : 1];
  }
  return {at, n};
}

std::vector<std::int64_t> Mixture::counts(std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0, "the first ", n, " samples of a mixture");
  std::vector<std::int64_t> of_all(sources_ + nodes_.size());
  of_all[root_] = n;
  for (auto i = nodes_.size(); i-- > 0;) {  // a node comes after its children
    const auto here = of_all[sources_ + i], to_left = left(nodes_[i], here);
    of_all[nodes_[i].child[0]] = to_left;
    of_all[nodes_[i].child[1]] = here - to_left;
  }
  of_all.resize(sources_);
  return of_all;
}

std::vector<std::int64_t> Mixture::weights_of(std::span<const double> shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> weights;
  for (const double share : shares) {
    LOCKSTEP_CHECK(std::isfinite(sum) && share > 0, "a source of share ", share, " of ", sum);
    weights.push_back(std::max<std::int64_t>(1, std::llround(std::ldexp(share / sum, 53))));
  }
  return weights;
}

}  // namespace lockstep
