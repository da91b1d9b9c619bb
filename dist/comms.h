// Comms: the groups that one rank talks in, each for one purpose and one stream. World: how a rank
// reaches all others, which groups are made from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"

namespace lockstep {

// What moves in a group, by which a backend may choose how.
enum class Carries : std::uint8_t {
  numbers,      // a few
  activations,  // compute waits for them
  parameters    // and gradients: beside compute, whose processors they should leave alone
};

// Some ranks of a world, in an order of their own.
struct GroupConfig {
  std::string name;  // see Communicator::name()
  std::vector<int> ranks;
  Carries carries = Carries::numbers;
};

// All ranks, in the order of the mesh, as one of them sees them.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // This rank is in the group. Every rank of the world calls it at the same place of its program,
  // each naming its own group.
  virtual std::unique_ptr<Communicator> connect(const GroupConfig& group) = 0;
  // Memory of this rank's GPU from which groups that are made later send, and into which they
  // receive, without copies in between; nullptr: they need none of their own. Every rank of the
  // world calls it at the same place of its program, with the same bytes, and gives it back before
  // the world ends. What a group sends from and receives into lies at the same place of it on each
  // rank.
  virtual std::shared_ptr<std::byte> allocate(std::int64_t /*bytes*/) { return nullptr; }
  // What each rank says, in their order: a few bytes, before the first step.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  // Beside training, from any thread; ranks make the same calls of a tag in the same order. What
  // each says, in their order, at rank 0, and elsewhere nothing; rank 0's word, at all.
  virtual std::vector<std::string> gather(const std::string& tag, const std::string& mine);
  virtual std::string broadcast(const std::string& tag, const std::string& text);
  // Where other ranks may reach this one's machine.
  virtual std::vector<std::string> addresses() const;
  // What is left to do, in another thread and within two seconds, where the ranks' watch ends this
  // process (watched_world.h); {}: nothing. Returns when the one before is not under way.
  using LastAct = std::function<void(const std::string& why, int exit_code)>;
  virtual void set_last_act(const LastAct& /*act*/) {}
  // This rank cannot go on: the others shall not wait for it. With MPI it does not return.
  virtual void abort(const std::string& why, int exit_code) noexcept = 0;
  // Of the collectives of this rank, where they are watched (watched_world.h).
  virtual CollectiveRing* ring() { return nullptr; }

  // act(); where it throws on one of several ranks, all end. Rank 0 speaks first, where an error is
  // everybody's.
  template <class Act>
  auto ends_all(Act&& act) {
    try {
      return act();
    } catch (const Error& error) {
      end_all(error.what(), error.exit_code());
      throw;
    } catch (const std::exception& error) {
      end_all(error.what(), 1);
      throw;
    }
  }

 private:
  void end_all(const std::string& why, int exit_code);
};

// A world of one rank; or, for measuring streams, one rank of a world that is not there.
class LoneWorld final : public World {
 public:
  explicit LoneWorld(int rank = 0, int size = 1) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override;
  std::vector<std::string> exchange(const std::string& mine) override;
  void abort(const std::string&, int) noexcept override {}

 private:
  int rank_, size_;
};

// The ranks of another world, which outlives it: what one over it does not do itself, that does.
class WorldOver : public World {
 public:
  explicit WorldOver(World& under) : under_(under) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    return under_.connect(group);
  }
  std::shared_ptr<std::byte> allocate(std::int64_t bytes) override {
    return under_.allocate(bytes);
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    return under_.exchange(mine);
  }
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override {
    return under_.gather(tag, mine);
  }
  std::string broadcast(const std::string& tag, const std::string& text) override {
    return under_.broadcast(tag, text);
  }
  std::vector<std::string> addresses() const override { return under_.addresses(); }
  void set_last_act(const LastAct& act) override { under_.set_last_act(act); }
  void abort(const std::string& why, int exit_code) noexcept override {
    under_.abort(why, exit_code);
  }
  CollectiveRing* ring() override { return under_.ring(); }

 protected:
  World& under_;
};

// A world with other numbers: its rank r is rank order[r] of `launched`, which outlives it.
class PlacedWorld final : public World {
 public:
  PlacedWorld(World& launched, std::vector<int> order);
  int rank() const override { return rank_; }
  int size() const override { return launched_.size(); }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override;
  std::vector<std::string> exchange(const std::string& mine) override;
  void abort(const std::string& why, int exit_code) noexcept override {
    launched_.abort(why, exit_code);
  }

 private:
  World& launched_;
  std::vector<int> order_;
  int rank_ = 0;
};

// A group that sums what is large, on two levels: `inside` are the ranks of one NVLink domain,
// `across` those at the same place of each domain. Member r of `whole` is, with I ranks in a
// domain, number r % I of inside in domain r / I. Where domains hold unequal numbers of them all
// are across. On uneven hosts groups of one kind differ in their levels: `ring` has one entry of a
// sum, however many calls it takes.
struct Levels {
  std::string name;
  CollectiveRing* ring = nullptr;
  std::unique_ptr<Communicator> whole;  // absent if no rank gathers the sums
  std::unique_ptr<Communicator> inside, across;

  int size() const { return inside->size() * across->size(); }
};

struct Comms {
  std::unique_ptr<World> own_world;  // of a rank alone
  World* world = nullptr;
  Mesh mesh;
  std::unique_ptr<Communicator> all;      // losses and norms          on the compute stream
  std::unique_ptr<Communicator> tensor;   // activations               on the compute stream
  std::unique_ptr<Communicator> gathers;  // weights, along shard      on the stream of gathers
  Levels shard, replicate;                // gradients                 on the stream of scatters
};

// `topology`: of the ranks as the mesh numbers them; without it all are in one domain. `world`
// outlives the result.
Comms make_comms(World& world, const Mesh& mesh, const Topology* topology = nullptr);
// Of one rank alone.
Comms make_comms();

}  // namespace lockstep
