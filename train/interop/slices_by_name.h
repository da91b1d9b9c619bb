// SlicesByName: the slices of a model's weights by parameter name, and functions that visit their
// elements, also for matrices that a file holds transposed. Import and export of other formats use
// it.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpointer.h"

namespace lockstep {

class SlicesByName {
 public:
  explicit SlicesByName(std::span<const StateSlice> weights) {
    for (const auto& slice : weights)
      by_name_[slice.name].push_back(&slice);
    for (auto& [name, slices] : by_name_)
      std::sort(slices.begin(), slices.end(),
                [](auto* a, auto* b) { return a->piece.begin < b->piece.begin; });
  }

  // Slices of a parameter on this rank, in ascending order.
  const std::vector<const StateSlice*>& of(const std::string& name) const {
    const auto found = by_name_.find(name);
    LOCKSTEP_CHECK(found != by_name_.end(), "the model has no parameter ", name);
    return found->second;
  }
  // Slices of a parameter that is whole on this rank.
  const std::vector<const StateSlice*>& whole(const std::string& name) const {
    const auto& slices = of(name);
    std::int64_t end = 0;
    for (const auto* slice : slices) {
      LOCKSTEP_CHECK(slice->split.parts == 1 && slice->piece.begin == end, name,
                     " is not whole on this rank");
      end = slice->piece.end;
    }
    LOCKSTEP_CHECK(end == slices.front()->whole.elements(), name, " is not whole on this rank");
    return slices;
  }
  const Shape& shape(const std::string& name) const { return of(name).front()->whole; }

 private:
  std::unordered_map<std::string, std::vector<const StateSlice*>> by_name_;
};

// Calls visit(whole, count, at) for each run of a slice's elements that are contiguous in the whole
// tensor: `count` elements from element `whole` of the tensor and element `at` of the slice.
template <class Visit>
void visit_runs(const StateSlice& slice, const Visit& visit) {
  Runs runs(slice.whole, slice.split, slice.piece);
  for (; !runs.done(); runs.advance(runs.count()))
    visit(runs.begin(), runs.count(), runs.in_piece());
}

// Visits the elements of a slice of a matrix [outputs, inputs] whose input is in [first, last).
// Calls visit(output, input, count, at) for runs of `count` inputs from element `at` of the slice.
template <class Visit>
void visit_inputs(const StateSlice& slice, std::int64_t first, std::int64_t last,
                  const Visit& visit) {
  const std::int64_t inputs = slice.whole[1];
  visit_runs(slice, [&](std::int64_t begin, std::int64_t elements, std::int64_t at) {
    const auto end = begin + elements;
    for (std::int64_t output = begin / inputs; output * inputs < end; ++output) {
      const auto from = std::max(first, begin - output * inputs);
      const auto to = std::min(last, end - output * inputs);
      if (from < to) visit(output, from, to - from, at + output * inputs + from - begin);
    }
  });
}

}  // namespace lockstep
