// RingWorld: a world whose collectives are written into a ring, as a watched one's are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/collective_ring.h"
#include "dist/comms.h"

namespace lockstep::testing {

class RingWorld final : public World {
 public:
  explicit RingWorld(World& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    return world_.connect(group);
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    const auto number = ring_.begin("exchange", "all ranks", 0, {});
    auto said = world_.exchange(mine);
    ring_.end(number, {});
    return said;
  }
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override {
    return world_.gather(tag, mine);
  }
  std::string broadcast(const std::string& tag, const std::string& text) override {
    return world_.broadcast(tag, text);
  }
  void abort(const std::string& why, int exit_code) noexcept override {
    world_.abort(why, exit_code);
  }
  CollectiveRing* ring() override { return &ring_; }

 private:
  World& world_;
  CollectiveRing ring_;
};

}  // namespace lockstep::testing
