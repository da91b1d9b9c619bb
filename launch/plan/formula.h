// A formula with its inputs, for people: an expression of + - * / ** ( ) sqrt(), exp(), expm1(),
// min() and max() that anybody can evaluate, as Python does, and its value.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Formula {
  struct Input {
    std::string name;
    double value = 0;
  };
  std::string name{}, text{};
  std::vector<Input> inputs{};
  double value = 0;
  std::string unit{};
};

}  // namespace lockstep
