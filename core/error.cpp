#include "core/error.h"

#include <cstring>

namespace lockstep {

std::string reason(int error) {
  return std::strerror(error);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace lockstep
