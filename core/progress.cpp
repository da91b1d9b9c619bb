#include "core/progress.h"

#include <atomic>

namespace lockstep {
namespace {

std::atomic<std::uint64_t> made{0};

}  // namespace

void made_progress() noexcept {
  made.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t progress_made() noexcept {
  return made.load(std::memory_order_relaxed);
}

}  // namespace lockstep
