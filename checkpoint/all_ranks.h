// What all ranks of a world do alike, beside training: they agree by messages of any length, never
// in a collective.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "dist/comms.h"

namespace lockstep {

class AllRanks {
 public:
  // `world` outlives this; nullptr: of this rank alone. `tag`: see World::gather.
  AllRanks(World* world, std::string tag) : world_(world), tag_(std::move(tag)) {}

  World* world() const { return world_; }
  int rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int size() const { return world_ == nullptr ? 1 : world_->size(); }
  bool is_first() const { return rank() == 0; }

  // act() on this rank; throws on all where it throws on one, an error of the same kind. Returns at
  // rank 0 what each rank's act() returned.
  //   acted: called behind it, before this rank waits for the others
  std::vector<std::string> act(
      FunctionRef<std::string()> act, FunctionRef<void()> acted = [] {}) const;
  // The same of those for whom `mine` is true, who say nothing.
  void act_if(
      bool mine, FunctionRef<void()> act, FunctionRef<void()> acted = [] {}) const;
  std::string told(const std::string& text) const;  // what rank 0 says
  // What each rank says, at all, in their order; before training, as World::exchange.
  std::vector<std::string> exchanged(const std::string& mine) const;

 private:
  std::vector<std::string> gathered(const std::string& mine) const;

  World* world_;
  std::string tag_;
};

}  // namespace lockstep
