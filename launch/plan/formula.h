// A formula with its inputs and value, for readers. Python can evaluate the expression, which has
// + - * / ** ( ) sqrt(), exp(), expm1(), min() and max().
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
