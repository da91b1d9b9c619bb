// Collectives of ranks on CPUs by each world (dist/mpi_world.h, dist/job/socket_world.h), beside
// those of MPI itself, by turns:
//
//   mpirun -n 2 build/cpu/bench/mpi_bench
//
// Ours begin on a stream of their own, as in a run. Best and median of rounds, of rank 0; every
// round begins and ends with all ranks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "core/arena.h"
#include "dist/job/socket_world.h"
#include "dist/mpi_world.h"

namespace lockstep {
namespace {

struct Times {
  double best = 0, median = 0;
};

std::vector<Times> by_turns(const std::vector<std::function<void()>>& ways, int rounds) {
  std::vector<std::vector<double>> all(ways.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = std::chrono::steady_clock::now();
      ways[way]();
      MPI_Barrier(MPI_COMM_WORLD);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      all[way].push_back(taken.count());
    }
  std::vector<Times> times;
  for (auto& one : all) {
    std::sort(one.begin(), one.end());
    times.push_back({one.front(), one[one.size() / 2]});
  }
  return times;
}

// The same call by each world, and by MPI itself.
struct Call {
  const char* name;
  std::function<void(Communicator&)> ours;
  std::function<void()> mpis;
};

void run(World& world) {
  std::vector<int> everyone;
  for (int rank = 0; rank < world.size(); ++rank)
    everyone.push_back(rank);
  const auto secret = Secret::from_hex(world.exchange(Secret::draw().hex()).front());
  SocketWorld shared_memory(world, {.secret = secret}),
      tcp(world, {.secret = secret, .shares_memory = false});
  std::vector<std::unique_ptr<Communicator>> groups;
  for (World* each : std::initializer_list<World*>{&world, &shared_memory, &tcp})
    groups.push_back(
        each->connect({.name = "all ranks", .ranks = everyone, .carries = Carries::tensors}));
  Stream stream(Device{}, "collectives", Stream::Mode::queued);
  if (world.rank() == 0)
    std::printf("ms, best and median:        %15s %15s %15s %15s\n", "our MPI", "shared memory",
                "TCP", "MPI's own");
  for (const std::int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
    const std::int64_t n = bytes / 4, piece = n / world.size();
    Arena arena(Device{}, Arena::Memory::host, 4 * bytes);
    const auto a = arena.allocate("a", DType::fp32, {piece * world.size()}),
               b = arena.allocate("b", DType::fp32, {piece * world.size()}),
               mine = arena.allocate("mine", DType::fp32, {piece});
    for (const auto& t : {a, b, mine})
      std::fill_n(t.as<float>(), t.elements(), 0.0f);
    const int count = static_cast<int>(piece);
    const std::vector<Call> calls{
        {"all_gather", [&](Communicator& group) { group.all_gather(a, mine, stream); },
         [&] {
           MPI_Allgather(mine.data, count, MPI_FLOAT, a.data, count, MPI_FLOAT, MPI_COMM_WORLD);
         }},
        {"reduce_scatter", [&](Communicator& group) { group.reduce_scatter(mine, b, stream); },
         [&] {
           MPI_Reduce_scatter_block(b.data, mine.data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
         }},
        {"all_to_all", [&](Communicator& group) { group.all_to_all(a, b, stream); },
         [&] { MPI_Alltoall(b.data, count, MPI_FLOAT, a.data, count, MPI_FLOAT, MPI_COMM_WORLD); }},
        {"all_reduce", [&](Communicator& group) { group.all_reduce(a, ReduceOp::sum, stream); },
         [&] {
           MPI_Allreduce(MPI_IN_PLACE, a.data, count * world.size(), MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD);
         }}};
    for (const auto& call : calls) {
      std::vector<std::function<void()>> ways;
      for (const auto& group : groups)
        ways.emplace_back([&] {
          call.ours(*group);
          stream.synchronize();
        });
      ways.push_back(call.mpis);
      const auto times = by_turns(ways, bytes >= 1 << 20 ? 25 : 200);
      if (world.rank() > 0) continue;
      std::printf("%d ranks, %5lld KiB %-15s", world.size(), static_cast<long long>(bytes >> 10),
                  call.name);
      for (const auto& time : times)
        std::printf(" %7.3f %7.3f", 1e3 * time.best, 1e3 * time.median);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lockstep

// NOLINTNEXTLINE(bugprone-exception-escape): a benchmark may end by what it could not do
int main() {
  const auto world = lockstep::start_mpi();
  world->ends_all([&] { lockstep::run(*world); });
}
