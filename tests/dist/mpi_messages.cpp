// Sends messages between ranks over MPI, and sums pieces. Some are so long that MPI sends them only
// when they are received.
//
//   mpirun -n 3 build/cpu/tests/mpi_messages
#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/arena.h"
#include "dist/mpi_world.h"

namespace lockstep {
namespace {

void fill_with(Tensor t, int rank) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<float>()[i] = static_cast<float>(rank + i % 101);
}

void check_from(int rank, ConstTensor t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    LOCKSTEP_CHECK(t.as<float>()[i] == static_cast<float>(rank + i % 101), "element ", i, " is ",
                   t.as<float>()[i], ", not of rank ", rank);
}

void exchange(Communicator& group, Stream& stream, std::int64_t n) {
  const int d = group.size(), me = group.rank(), left = (me + d - 1) % d, right = (me + 1) % d;
  Arena arena(Device{}, Arena::Memory::host, std::int64_t{32} << 20);
  const auto allocate = [&](std::int64_t size) {
    return arena.allocate("message", DType::fp32, {size});
  };
  const auto sent = allocate(n), from_left = allocate(n), from_right = allocate(n);
  const auto ones = allocate(n);
  fill_with(sent, me);
  std::fill_n(ones.as<float>(), n, 1.0f);
  group.together([&] {  // a ring in both directions, with a collective between the messages
    group.send(sent, right, stream);
    if (me == 0) group.all_reduce(ones, ReduceOp::sum, stream);
    group.send(sent, left, stream);
    group.receive(from_left, left, stream);
    if (me > 0) group.all_reduce(ones, ReduceOp::sum, stream);
    group.receive(from_right, right, stream);
  });
  stream.synchronize();
  check_from(left, from_left);
  check_from(right, from_right);
  for (std::int64_t i = 0; i < n; ++i)
    LOCKSTEP_CHECK(ones.as<float>()[i] == static_cast<float>(d), "a sum of ", ones.as<float>()[i]);
  if (me > 0) group.receive(sent, me - 1, stream);
  if (me + 1 < d) group.send(sent, me + 1, stream);
  stream.synchronize();
  check_from(0, sent);
}

// Rank r gets the sum of piece r of all ranks. These integers and their sums are numbers of bf16.
void reduce(Communicator& group, Stream& stream, std::int64_t n) {
  const int d = group.size(), me = group.rank();
  Arena arena(Device{}, Arena::Memory::host, std::int64_t{32} << 20);
  const auto value = [](int rank, std::int64_t i) { return static_cast<float>((rank + i) % 31); };
  const auto pieces = arena.allocate("pieces", DType::bf16, {d * n}),
             sum = arena.allocate("sum", DType::bf16, {n});
  for (std::int64_t i = 0; i < d * n; ++i)
    pieces.as<BFloat16>()[i] = to_bf16(value(me, i));
  group.reduce_scatter(sum, pieces, stream);
  stream.synchronize();
  for (std::int64_t i = 0; i < n; ++i) {
    float expected = 0;
    for (int rank = 0; rank < d; ++rank)
      expected += value(rank, me * n + i);
    LOCKSTEP_CHECK(to_float(sum.as<BFloat16>()[i]) == expected, "element ", i, " is ",
                   to_float(sum.as<BFloat16>()[i]), ", expected ", expected);
  }
}

void run(World& world) {
  std::vector<int> everyone;
  for (int rank = 0; rank < world.size(); ++rank)
    everyone.push_back(rank);
  LOCKSTEP_CHECK(world.size() > 2, "three ranks or more, not ", world.size());
  const auto group = world.connect({"all ranks", everyone});
  for (const auto mode : {Stream::Mode::immediate, Stream::Mode::queued}) {
    Stream stream(Device{}, "messages", mode);
    for (const std::int64_t n : {1, 5000, 1 << 20}) {
      exchange(*group, stream, n);
      reduce(*group, stream, n);
    }
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  try {
    const auto world = lockstep::start_mpi();
    world->ends_all([&] { lockstep::run(*world); });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_messages: %s\n", error.what());
    return 1;
  }
}
