// ModelWeights holds the weights of a model without a Training, for import and export.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/slices.h"
#include "model/transformer.h"
#include "tests/testing.h"
#include "train/step/state_slices.h"

namespace lockstep::testing {

class ModelWeights {
 public:
  explicit ModelWeights(const ModelConfig& config, DType dtype = DType::fp32)
      : params_(comms_, {.compute_dtype = dtype, .stochastic_rounding = true}),
        transformer_(params_, config, {}) {
    params_.allocate_weights(bench_.arena, bench_.stream);
    slices = weight_slices(params_);
    for (const auto& slice : slices)
      std::fill_n(slice.local.data, slice.local.bytes(), std::byte{0xff});  // NaN
  }

  // Every parameter's values by name.
  std::map<std::string, Doubles> values() const {
    std::map<std::string, Doubles> all;
    for (const auto& slice : slices)
      all[slice.name] = doubles(slice.local);
    return all;
  }
  // Each slice cut in two, as shards have it.
  std::vector<StateSlice> halves() const {
    std::vector<StateSlice> all;
    for (const auto& slice : slices) {
      const auto middle = slice.local.elements() * 3 / 7;
      auto first = slice, second = slice;
      first.piece.end = second.piece.begin = slice.piece.begin + middle;
      first.local = slice.local.rows(0, middle);
      second.local = slice.local.rows(middle, slice.local.elements() - middle);
      all.push_back(second);
      all.push_back(first);
    }
    return all;
  }

  // Matrices cut in two along dimension 1, as tensor ranks have them. put_together() copies the
  // values that were read into them to `slices`.
  std::vector<StateSlice> columns() {
    std::vector<StateSlice> all;
    for (const auto& slice : slices) {
      if (slice.whole.rank < 2) {
        all.push_back(slice);
        continue;
      }
      const auto step = (slice.whole[1] + 1) / 2;
      for (const int part : {0, 1}) {
        auto cut = slice;
        cut.split = {1, 2, step};
        const auto n = part_elements(slice.whole, cut.split, part);
        cut.piece = {part, 0, n};
        cut.local = bench_.poisoned({n}, slice.local.dtype);
        all.push_back(cut);
      }
    }
    return all;
  }
  void put_together(const std::vector<StateSlice>& cut) {
    std::map<std::string, StateSlice> by_name;
    for (const auto& slice : slices)
      by_name.emplace(slice.name, slice);
    for (const auto& part : cut)
      for (Runs runs(part.whole, part.split, part.piece); !runs.done();
           runs.advance(runs.count())) {
        const auto element = bytes_per_element(part.local.dtype);
        std::copy_n(part.local.data + runs.in_piece() * element, runs.count() * element,
                    by_name.at(part.name).local.data + runs.begin() * element);
      }
  }

  std::vector<StateSlice> slices;

 private:
  Bench bench_;
  Comms comms_ = make_comms();
  ParamStore params_;
  Transformer transformer_;
};

}  // namespace lockstep::testing
