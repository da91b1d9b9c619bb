// The weights of a model without its step, to import into and export from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "tests/testing.h"
#include "train/run_state.h"

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
  // Cut each slice in two, as shards would.
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

  std::vector<StateSlice> slices;

 private:
  Bench bench_;
  Comms comms_ = make_comms();
  ParamStore params_;
  Transformer transformer_;
};

}  // namespace lockstep::testing
