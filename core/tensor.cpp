#include "core/tensor.h"

#include <ostream>

namespace lockstep {

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << "[";
  for (int i = 0; i < shape.rank; ++i)
    out << (i == 0 ? "" : ", ") << shape[i];
  return out << "]";
}

}  // namespace lockstep
