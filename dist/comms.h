// Comms holds the groups of one rank: each serves one purpose and one stream. World connects a rank
// to all others; groups are made from it.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"

namespace lockstep {

// Kind of data that a group transfers. A backend may choose its method by it.
enum class Carries : std::uint8_t {
  numbers,  // a few values
  tensors   // large transfers, which should leave the multiprocessors to concurrent compute
};

// Some ranks of a world, in the group's own order.
struct GroupConfig {
  std::string name;  // see Communicator::name()
  std::vector<int> ranks;
  Carries carries = Carries::numbers;
  Group group = Group::other;
  int domains = 1;  // NVLink domains over which its ranks are spread
};

// World is one rank's view of all ranks, in the order of the mesh.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Makes the communicator of a group that contains this rank. Every rank of the world calls it at
  // the same place in its program, each with its own group.
  virtual std::unique_ptr<Communicator> connect(const GroupConfig& group) = 0;
  // Allocates memory on this rank's GPU. Groups send from it and receive into it without
  // intermediate copies. nullptr: the groups need no memory of their own. Every rank of the world
  // calls it at the same place in its program with the same number of bytes, and frees the memory
  // before the world ends. The buffers of a collective lie at the same offset in it on each rank.
  virtual std::shared_ptr<std::byte> allocate(std::int64_t /*bytes*/) { return nullptr; }
  // Returns the text of each rank, in rank order. Texts have a few bytes. Call it before the first
  // step.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  // gather() and broadcast() run beside training, from any thread. Ranks make the same calls of a
  // tag in the same order. gather() returns each rank's text in rank order at rank 0, and nothing
  // elsewhere. broadcast() returns the text of rank 0 at every rank.
  virtual std::vector<std::string> gather(const std::string& tag, const std::string& mine);
  virtual std::string broadcast(const std::string& tag, const std::string& text);
  // Addresses under which other ranks may reach this rank's host.
  virtual std::vector<std::string> addresses() const;
  // Sets a handler that runs in another thread, within two seconds, before the failure detector
  // (monitored_world.h) exits this process; {} sets no handler. Waits until the previous handler
  // has finished, if it is running. `lost`: at rank 0, the ranks that died, stopped answering or
  // stalled.
  using ExitHandler =
      std::function<void(const std::string& why, int exit_code, const std::vector<int>& lost)>;
  virtual void set_exit_handler(const ExitHandler& /*act*/) {}
  // Aborts all other ranks, because this rank cannot continue. With MPI it does not return.
  virtual void abort(const std::string& why, int exit_code) noexcept = 0;
  // Memory of this rank's GPU and time that the groups took until their first calls were made, as
  // text for the log; "" if they take none.
  virtual std::string costs_in_words() { return ""; }
  // Returns the record of this rank's collectives; nullptr unless they are watched
  // (monitored_world.h).
  virtual CollectiveRing* ring() { return nullptr; }

  // Calls act(). If it throws on one of several ranks, all ranks abort. If all ranks have the same
  // error, rank 0 reports it first.
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

// A world of one rank; for measuring streams also one rank of a world whose other ranks do not
// exist.
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

// WorldOver is a base for worlds on top of another one, which outlives it. It forwards to that
// world every call that a subclass does not override.
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
  void set_exit_handler(const ExitHandler& act) override { under_.set_exit_handler(act); }
  void abort(const std::string& why, int exit_code) noexcept override {
    under_.abort(why, exit_code);
  }
  std::string costs_in_words() override { return under_.costs_in_words(); }
  CollectiveRing* ring() override { return under_.ring(); }

 protected:
  World& under_;
};

// A world with other rank numbers: its rank r is rank order[r] of `launched`, which outlives it.
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

// Levels is a group for large sums, on two levels. `inside` has the ranks of one NVLink domain;
// `across` has the ranks at the same place of each domain. With I ranks in a domain, member r of
// `whole` is member r % I of `inside` in domain r / I. If domains hold unequal numbers of the
// ranks, all ranks are in `across`. On uneven hosts, groups of one kind differ in their levels.
// `ring` therefore has one entry per sum, however many calls it takes. With Reduce::nccl there is
// only `whole`. A group that no call needs has this rank alone.
struct Levels {
  std::string name;
  CollectiveRing* ring = nullptr;
  std::unique_ptr<Communicator> whole, inside, across;
  int domains = 1;  // NVLink domains of the ranks

  int size() const { return std::max(whole->size(), inside->size() * across->size()); }
};

struct Comms {
  std::unique_ptr<World> own_world;  // for a rank that runs alone
  World* world = nullptr;
  Mesh mesh;
  Reduce reduce = Reduce::fp32;
  std::unique_ptr<Communicator> all;      // losses and norms          on the compute stream
  std::unique_ptr<Communicator> tensor;   // activations               on the tensor stream
  std::unique_ptr<Communicator> gathers;  // weights, along shard      on the all-gather stream
  Levels shard, replicate;                // gradients                 on the reduce-scatter stream
};

// Whether the calls of a group have a stream beside the compute stream of `device`. Those of
// `tensor` have one on GPUs only: on CPUs its thread would take cores from compute.
bool runs_beside(Group group, Device device);

// `topology` describes the ranks as the mesh numbers them; without it all ranks are in one domain.
// `world` outlives the result.
Comms make_comms(World& world, const Mesh& mesh, const DomainMap* topology = nullptr,
                 Reduce reduce = Reduce::fp32);
// Makes the groups of a single rank.
Comms make_comms();

}  // namespace lockstep
