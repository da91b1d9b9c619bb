#include "core/component.h"

#include <numeric>

namespace lockstep {
namespace {

struct Names {
  const char *json, *words;
};
constexpr std::array<Names, kComponents> kNames{{
    {"products", "matmuls"},
    {"attention", "attention"},
    {"memory_bound", "memory-bound"},
    {"communication_tensor", "communication, tensor"},
    {"communication_shard", "communication, shard"},
    {"communication_replicate", "communication, replicate"},
    {"communication_ranks", "communication, all ranks"},
    {"communication_host", "communication, host"},
    {"optimizer", "optimizer"},
    {"data", "data"},
    {"checkpoint", "checkpoint"},
    {"other", "other"},
}};

}  // namespace

const char* name(Component component) {
  return kNames[static_cast<std::size_t>(component)].json;
}

const char* in_words(Component component) {
  return kNames[static_cast<std::size_t>(component)].words;
}

double StepTime::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

bool StepTime::shows(Component component) const {
  return (*this)[component] > 5e-5 * total();
}

}  // namespace lockstep
