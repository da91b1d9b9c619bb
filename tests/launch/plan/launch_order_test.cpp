#include <gtest/gtest.h>
#include <optional>
#include <set>

#include "dist/volume.h"
#include "launch/plan/step_program.h"
#include "launch/plan/step_time.h"
#include "launch/plan/time_model.h"
#include "tests/support/order_model.h"
#include "tests/train/layout_rig.h"

namespace lockstep::testing::launch_order_test {

using What = OrderEntry::What;

// Seconds of an operator in these programs: collectives are slow.
double seconds_of(const Op& op) {
  return 1e-12 * op.flops +
         static_cast<double>(op.bytes) * (op.kind == Op::Kind::collective ? 1e-8 : 1e-10);
}

TrainingConfig config_of(const Layout& layout) {
  TrainingConfig config = layout_config(Family::llama3);
  config.model.layers = 3;
  config.compute = DType::bf16;
  config.mesh = layout.mesh;
  config.sharding = layout.sharding;
  config.global_batch_sequences = std::int64_t{2} * layout.mesh.replicate * layout.mesh.shard;
  return config;
}

// The step that each rank of a layout records on a GPU. A kernel needs one slot.
OrderProgram recorded(const Layout& layout, Reduce reduce = Reduce::fp32, std::int64_t chunks = 1) {
  auto config = config_of(layout);
  config.reduce = reduce;
  config.tensor_chunks = chunks;
  config.sequence_length = config.model.max_positions = 32;
  const auto topology = topology_of(layout);
  OrderProgram program;
  std::map<std::pair<Group, std::vector<int>>, int> groups;
  for (int rank = 0; rank < layout.mesh.world(); ++rank) {
    const auto step = record_step(config, {Device::Kind::cuda}, 1, rank, &topology);
    LoneWorld world(rank, layout.mesh.world());
    const Comms comms = make_comms(world, layout.mesh, &topology, reduce);
    program.streams = step.log->streams();
    for (const auto& [what, stream, within, op, event, seconds] : step.log->entries()) {
      OrderEntry entry{.rank = rank, .stream = stream, .seconds = seconds_of(op), .event = event};
      if (what != OpLog::What::op) {
        entry.what = what == OpLog::What::record ? What::record : What::wait;
      } else if (op.kind != Op::Kind::collective) {
        entry.what = What::compute;
        entry.name = op.name;
      } else if (op.ranks == 1) {
        continue;
      } else {
        const auto& group = group_of(comms, op.group);
        const auto [of, is_new] =
            groups.try_emplace({op.group, group.ranks()}, static_cast<int>(program.groups.size()));
        if (is_new) program.groups.push_back({group.name(), group.ranks()});
        entry.group = of->second;
        entry.name = str(op.name, " of ", op.bytes);
        entry.uses_copy_engines =
            collective_call(op, step.place_of(op.group).inside()).by_copy_engines;
      }
      program.entries.push_back(std::move(entry));
    }
  }
  return program;
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const auto& mesh :
       {Mesh{.replicate = 2, .shard = 2, .tensor = 2}, Mesh{.shard = 4, .tensor = 2},
        Mesh{.replicate = 2, .shard = 4}, Mesh{.shard = 8}, Mesh{.replicate = 4, .tensor = 2}})
    for (const auto sharding :
         {Sharding::optimizer, Sharding::gradients, Sharding::weights, Sharding::full})
      for (const int per_domain : {2, 4})
        if (mesh.shard > 1 || sharding == Sharding::full)
          all.push_back({mesh, sharding, per_domain, {}});
  return all;
}

Layout fsdp_with_tensor_ranks(Sharding sharding = Sharding::full) {
  return {Mesh{.shard = 4, .tensor = 2}, sharding, 4, {}};
}

// Returns the program in which a rank enqueues collective `second` before `first` (indices in
// `entries`). Entries that depend on `first` move behind `second`. Returns nothing if `second`
// itself depends on `first`.
std::optional<OrderProgram> swapped(OrderProgram program, std::size_t first, std::size_t second) {
  std::vector<OrderEntry> early, late;
  std::set<int> late_streams{program.entries[first].stream};
  std::set<std::int64_t> late_events;
  for (std::size_t e = first; e <= second; ++e) {
    const auto& entry = program.entries[e];
    if (entry.what == What::wait && late_events.contains(entry.event))
      late_streams.insert(entry.stream);
    const bool is_late = late_streams.contains(entry.stream);
    if (is_late && entry.what == What::record) late_events.insert(entry.event);
    (is_late ? late : early).push_back(entry);
  }
  if (late_streams.contains(program.entries[second].stream)) return {};
  early.insert(early.end(), late.begin(), late.end());
  std::copy(early.begin(), early.end(),
            program.entries.begin() + static_cast<std::ptrdiff_t>(first));
  return program;
}

// Returns the pairs of successive collectives of a rank, as indices in `entries`.
std::vector<std::pair<std::size_t, std::size_t>> successive(const OrderProgram& program) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::optional<std::size_t> last;
  for (std::size_t e = 0; e < program.entries.size(); ++e) {
    if (program.entries[e].what != What::collective) continue;
    if (last && program.entries[*last].rank == program.entries[e].rank)
      pairs.emplace_back(*last, e);
    last = e;
  }
  return pairs;
}

// Launch order makes one slot enough for all groups.
TEST(LaunchOrder, no_recorded_layout_deadlocks_with_one_slot) {
  for (const auto& layout : layouts())
    for (const auto reduce : {Reduce::fp32, Reduce::nccl})
      for (const std::int64_t chunks : {1, 2})
        EXPECT_EQ(find_deadlock(recorded(layout, reduce, chunks), {.slots = 1}), "")
            << name_of(layout) << ", " << layout.per_domain << " per domain, " << name(reduce)
            << ", chunks " << chunks;
}

// In these layouts collectives run on four streams, so four slots suffice without launch order.
// With fewer slots a run needs it, and sets NCCL_LAUNCH_ORDER_IMPLICIT (dist/nccl_world.cpp). If
// NCCL refuses windows, copy engines move nothing, and more layouts need it.
TEST(LaunchOrder, without_it_weights_and_tensor_ranks_deadlock) {
  for (const auto sharding :
       {Sharding::optimizer, Sharding::gradients, Sharding::weights, Sharding::full}) {
    auto layout = fsdp_with_tensor_ranks(sharding);
    layout.per_domain = 2;
    auto program = recorded(layout);
    const auto found = [&](int slots) {
      return find_deadlock(program, {.slots = slots, .launch_order = false}).substr(0, 9);
    };
    EXPECT_EQ(found(1), divides_weights(sharding) ? "deadlock:" : "") << name_of(layout);
    for (auto& entry : program.entries)
      entry.uses_copy_engines = false;
    EXPECT_EQ(found(1), "deadlock:") << name_of(layout);
    EXPECT_EQ(found(4), "") << name_of(layout);
    EXPECT_EQ(find_deadlock(program, {.slots = 1}), "") << name_of(layout);
  }
}

bool share_another_rank(const OrderProgram& program, const OrderEntry& a, const OrderEntry& b) {
  const auto& [name, ranks] = program.groups[static_cast<std::size_t>(a.group)];
  const auto& others = program.groups[static_cast<std::size_t>(b.group)].ranks;
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return rank != a.rank && std::find(others.begin(), others.end(), rank) != others.end();
  });
}

// A wrong order is harmless if no other rank is in both groups. It is also harmless if copy engines
// run one of the calls, because they hold no slot.
TEST(LaunchOrder, a_wrong_order_on_one_rank_deadlocks_if_another_rank_is_in_both_groups) {
  const auto program = recorded(fsdp_with_tensor_ranks());
  const auto pairs = successive(program);
  int deadlocks = 0, harmless = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto& [first, second] = pairs[philox(seed, 0, 0)[0] % pairs.size()];
    const auto wrong = swapped(program, first, second);
    if (!wrong) continue;
    const auto &a = program.entries[first], &b = program.entries[second];
    const bool is_wrong =
        !a.uses_copy_engines && !b.uses_copy_engines && share_another_rank(program, a, b);
    const auto found = find_deadlock(*wrong, {.slots = 1});
    EXPECT_EQ(found.substr(0, 9), is_wrong ? "deadlock:" : "") << seed << found;
    ++(is_wrong ? deadlocks : harmless);
  }
  EXPECT_GT(deadlocks, 0);
  EXPECT_GT(harmless, 0);
}

TEST(LaunchOrder, another_order_of_two_calls_of_a_group_is_a_mismatch) {
  const auto program = recorded(fsdp_with_tensor_ranks());
  int mismatches = 0;
  for (const auto& [first, second] : successive(program)) {
    auto wrong = program;
    auto &a = wrong.entries[first], &b = wrong.entries[second];
    if (a.group != b.group || a.name == b.name || ++mismatches % 20 != 1) continue;
    std::swap(a.name, b.name);
    EXPECT_EQ(find_deadlock(wrong).substr(0, 9), "mismatch:");
  }
  EXPECT_GT(mismatches, 100);
}

// A tensor collective that is enqueued after a reduction waits until the reduction has begun its
// transfer across domains. Inside one domain copy engines move the pieces, and nothing waits.
TEST(LaunchOrder, tensor_ranks_wait_for_a_reduction_across_domains) {
  for (const int per_domain : {4, 8}) {
    auto layout = fsdp_with_tensor_ranks();
    layout.per_domain = per_domain;
    const auto program = recorded(layout);
    const auto times = critical_path(program, {.slots = 4});
    const auto& path = times.path;
    const auto name = [&](std::size_t i) {
      return program.streams[static_cast<std::size_t>(path[i].stream)];
    };
    int waits = 0;
    for (std::size_t i = 1; i < path.size(); ++i)
      if (path[i].after == "launch order" && name(i) == "tensor" && name(i - 1) == "across")
        ++waits;
    const auto end = critical_path(program, {.slots = 4, .launch_order = false}).path.back().end;
    if (per_domain == 4) {
      EXPECT_GT(waits, 0) << in_words(program, times);
      EXPECT_LT(end, path.back().end);
    } else {
      EXPECT_EQ(end, path.back().end) << in_words(program, times);
    }
  }
}

// With k chunks, compute waits for the all-gather of the first chunk and for the sum of the last.
// The others run beside matmuls, which take longer here.
TEST(LaunchOrder, chunks_of_the_tokens_run_beside_matmuls) {
  const Layout layout{.mesh = {.tensor = 2}};
  const auto waits = [&](std::int64_t chunks, Recompute recompute) {
    auto config = config_of(layout);
    config.recompute = recompute;
    config.tensor_chunks = chunks;
    config.sequence_length = config.model.max_positions = 4096;
    const auto step = record_step(config, {Device::Kind::cuda}, 1, 0);
    const auto seconds = [](const Op& op) {  // a matmul takes longer than its collective
      return op.kind == Op::Kind::collective ? 1e-9 * static_cast<double>(op.bytes)
                                             : 1e-10 * op.flops;
    };
    const auto time = step_time(step, {.seconds = seconds});
    return time.seconds[static_cast<std::size_t>(Component::communication_tensor)];
  };
  for (const auto recompute : {Recompute::none, Recompute::block}) {
    const double one = waits(1, recompute);
    EXPECT_LT(waits(2, recompute), 0.6 * one);
    EXPECT_LT(waits(4, recompute), 0.4 * one);
  }
}

}  // namespace lockstep::testing::launch_order_test
