// AllRanks runs one action on all ranks of a world, in parallel with training. Ranks agree by
// messages of any length on the control connection, never by a collective.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "dist/comms.h"

namespace lockstep {

class AllRanks {
 public:
  // `world` must outlive this object; nullptr means a single rank. `tag`: see World::gather.
  AllRanks(World* world, std::string tag) : world_(world), tag_(std::move(tag)) {}

  World* world() const { return world_; }
  int rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int size() const { return world_ == nullptr ? 1 : world_->size(); }
  bool is_first() const { return rank() == 0; }

  // Calls act() on this rank. If it throws on any rank, all ranks throw an error of the same type.
  // Returns the results of all ranks at rank 0.
  //   acted: called after act(), before this rank waits for the others
  std::vector<std::string> act(
      FunctionRef<std::string()> act, FunctionRef<void()> acted = [] {}) const;
  // Same as act(), but only at rank 0. It costs one message to each rank, and none from them.
  void act_first(
      FunctionRef<void()> act, FunctionRef<void()> acted = [] {}) const;
  // Same as act(), but only on ranks where `mine` is true, and without results.
  void act_if(
      bool mine, FunctionRef<void()> act, FunctionRef<void()> acted = [] {}) const;
  std::string told(const std::string& text) const;  // the `text` of rank 0, on all ranks
  // The `mine` of all ranks in rank order, on all ranks. Call before training: World::exchange.
  std::vector<std::string> exchanged(const std::string& mine) const;

 private:
  using Answer = FunctionRef<std::string(const std::vector<std::string>&)>;
  std::string answered(const std::string& mine, const Answer& answer) const;

  World* world_;
  std::string tag_;
};

}  // namespace lockstep
