// RingWorld records collectives in a ring, as a watched world does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/collective_ring.h"
#include "dist/comms.h"

namespace lockstep::testing {

class RingWorld final : public WorldOver {
 public:
  explicit RingWorld(World& world) : WorldOver(world) {}
  std::vector<std::string> exchange(const std::string& mine) override {
    const auto number = ring_.begin("exchange", "all ranks", 0, {});
    auto said = under_.exchange(mine);
    ring_.end(number, {});
    return said;
  }
  CollectiveRing* ring() override { return &ring_; }

 private:
  CollectiveRing ring_;
};

}  // namespace lockstep::testing
