#include "tests/support/order_model.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "core/error.h"
#include "core/philox.h"

namespace lockstep::testing::order_model_test {

using What = OrderEntry::What;

// Two groups of both ranks, on two streams. Rank 1 launches them in the other order.
OrderProgram opposite_orders() {
  return {.streams = {"gathers", "compute"},
          .groups = {{"shard", {0, 1}}, {"tensor", {0, 1}}},
          .entries = {{.rank = 0, .group = 0, .name = "gather", .stream = 0},
                      {.rank = 0, .group = 1, .name = "sum", .stream = 1},
                      {.rank = 1, .group = 1, .name = "sum", .stream = 1},
                      {.rank = 1, .group = 0, .name = "gather", .stream = 0}}};
}

TEST(OrderModel, opposite_orders_deadlock_with_one_slot) {
  for (const bool launch_order : {true, false}) {
    const auto found = find_deadlock(opposite_orders(), {.slots = 1, .launch_order = launch_order});
    EXPECT_EQ(found,
              "deadlock:"
              "\n  rank 0, stream gathers: gather, call 0 of shard has begun, waits for rank 1"
              "\n  rank 0, stream compute: sum, call 0 of tensor waits for slots of gather"
              "\n  rank 1, stream gathers: gather, call 0 of shard waits for slots of sum"
              "\n  rank 1, stream compute: sum, call 0 of tensor has begun, waits for rank 0"
              "\nafter the begins of"
              "\n  rank 0, stream gathers: gather, call 0 of shard"
              "\n  rank 1, stream compute: sum, call 0 of tensor");
  }
}

TEST(OrderModel, opposite_orders_end_with_slots_for_each_stream) {
  auto program = opposite_orders();
  for (auto& entry : program.entries)
    entry.slots = 2;
  for (const bool launch_order : {true, false}) {
    EXPECT_NE(find_deadlock(program, {.slots = 3, .launch_order = launch_order}), "");
    EXPECT_EQ(find_deadlock(program, {.slots = 4, .launch_order = launch_order}), "");
  }
}

// A GPU may begin ready collectives in any order, unless launch order is on.
TEST(OrderModel, equal_orders_end_with_launch_order) {
  auto program = opposite_orders();
  std::swap(program.entries[2], program.entries[3]);
  EXPECT_EQ(find_deadlock(program, {.launch_order = true}), "");
  EXPECT_NE(find_deadlock(program, {.launch_order = false}), "");
  // Events do the same, if both ranks have them.
  for (const int rank : {1, 0}) {
    EXPECT_NE(find_deadlock(program, {.launch_order = false}), "");
    const OrderEntry record{.rank = rank, .what = What::record, .stream = 0, .event = 7};
    const OrderEntry wait{.rank = rank, .what = What::wait, .stream = 1, .event = 7};
    program.entries.insert(program.entries.begin() + 2 * rank + 1, {record, wait});
  }
  EXPECT_EQ(find_deadlock(program, {.launch_order = false}), "");
}

TEST(OrderModel, an_order_of_three_ranks_deadlocks_in_a_circle) {
  const auto program = [](bool last_swapped) {
    OrderProgram p{.groups = {{"a", {0, 1}}, {"b", {1, 2}}, {"c", {2, 0}}}};
    const auto add = [&](int rank, int first, int second) {
      p.entries.push_back({.rank = rank, .group = first, .name = "send", .stream = first});
      p.entries.push_back({.rank = rank, .group = second, .name = "send", .stream = second});
    };
    add(0, 0, 2);
    add(1, 1, 0);
    last_swapped ? add(2, 1, 2) : add(2, 2, 1);
    return p;
  };
  EXPECT_NE(find_deadlock(program(false)), "");
  EXPECT_EQ(find_deadlock(program(true)), "");
}

// At first only the gather of rank 0 is ready there. The sum is ready after a send of other ranks,
// and may then begin before the gather.
TEST(OrderModel, a_collective_that_is_ready_later_may_begin_first) {
  const OrderProgram program{
      .groups = {{"shard", {0, 1}}, {"tensor", {0, 1}}, {"copies", {0, 1}}, {"pair", {1, 2}}},
      .entries = {{.rank = 0, .group = 0, .name = "gather"},
                  {.rank = 0, .group = 2, .name = "copy", .stream = 1, .uses_copy_engines = true},
                  {.rank = 0, .group = 1, .name = "sum", .stream = 1},
                  {.rank = 1, .group = 3, .name = "send", .stream = 1},
                  {.rank = 1, .group = 2, .name = "copy", .stream = 1, .uses_copy_engines = true},
                  {.rank = 1, .what = What::record, .stream = 1, .event = 1},
                  {.rank = 1, .what = What::wait, .event = 1},
                  {.rank = 1, .group = 0, .name = "gather"},
                  {.rank = 1, .group = 1, .name = "sum"},
                  {.rank = 2, .group = 3, .name = "send"}}};
  EXPECT_NE(find_deadlock(program, {.slots = 1, .launch_order = false}), "");
  EXPECT_EQ(find_deadlock(program, {.slots = 2, .launch_order = false}), "");
}

TEST(OrderModel, copy_engines_need_no_slots) {
  auto program = opposite_orders();
  for (auto& entry : program.entries)
    entry.uses_copy_engines = entry.group == 0;
  EXPECT_EQ(find_deadlock(program), "");
  EXPECT_EQ(find_deadlock(program, {.launch_order = false}), "");
}

// The copies of rank 0 wait for the begin of its sum, which waits for the slot of its send. Rank 1
// sends after the copies.
TEST(OrderModel, copy_engines_wait_for_the_launch_order) {
  OrderProgram program{
      .groups = {{"shard", {0, 1}}, {"tensor", {0, 1}}, {"pair", {0, 1}}},
      .entries = {{.rank = 0, .group = 2, .name = "send", .stream = 2},
                  {.rank = 0, .group = 1, .name = "sum", .stream = 1},
                  {.rank = 0, .group = 0, .name = "gather", .uses_copy_engines = true},
                  {.rank = 1, .group = 0, .name = "gather", .uses_copy_engines = true},
                  {.rank = 1, .group = 2, .name = "send"},
                  {.rank = 1, .group = 1, .name = "sum"}}};
  EXPECT_NE(find_deadlock(program, {.slots = 1}), "");
  EXPECT_EQ(find_deadlock(program, {.slots = 2}), "");
}

// On rank 0, the gather waits for the send in its stream. Rank 1 sends after the sum.
TEST(OrderModel, copy_engines_do_not_extend_the_launch_order) {
  for (const bool copies : {true, false}) {
    const OrderProgram program{
        .groups = {{"shard", {0, 1}}, {"tensor", {0, 1}}, {"pair", {0, 1}}},
        .entries = {{.rank = 0, .group = 2, .name = "send"},
                    {.rank = 0, .group = 0, .name = "gather", .uses_copy_engines = copies},
                    {.rank = 0, .group = 1, .name = "sum", .stream = 1},
                    {.rank = 1, .group = 1, .name = "sum"},
                    {.rank = 1, .group = 2, .name = "send"},
                    {.rank = 1, .group = 0, .name = "gather", .uses_copy_engines = copies}}};
    EXPECT_EQ(find_deadlock(program, {.slots = 2}).empty(), copies);
  }
}

TEST(OrderModel, calls_that_differ_between_ranks_are_mismatches) {
  auto program = opposite_orders();
  program.entries[2].name = "gather";
  EXPECT_EQ(find_deadlock(program, {.slots = 2}),
            "mismatch: rank 0, stream compute: sum, call 0 of tensor; rank 1, stream compute: "
            "gather, call 0 of tensor");
  program.entries.pop_back();
  EXPECT_EQ(find_deadlock(program, {.slots = 2}),
            "mismatch: rank 0, stream gathers: gather, call 0 of shard is not called by rank 1");
  program.entries = {{.rank = 2, .group = 1, .name = "sum"}};
  EXPECT_EQ(find_deadlock(program, {.slots = 2}), "mismatch: rank 2 is not in tensor");
}

// Searches all runs of a program of few entries, step by step, without the model's reductions.
class AllRuns {
 public:
  AllRuns(const OrderProgram& program, const OrderOptions& options)
      : program_(program), options_(options) {}

  bool deadlock() {
    std::vector<Phases> open{Phases(program_.entries.size(), Phase::waits)};
    std::set<Phases> seen{open.front()};
    while (!open.empty()) {
      const Phases phases = open.back();
      open.pop_back();
      bool is_last = true;
      for (std::size_t e = 0; e < phases.size(); ++e) {
        if (phases[e] == Phase::waits ? !may_begin(phases, e) : !may_end(phases, e)) continue;
        is_last = false;
        Phases after = phases;
        after[e] = phases[e] == Phase::waits ? Phase::runs : Phase::ended;
        if (seen.insert(after).second) open.push_back(after);
      }
      if (is_last && phases != Phases(phases.size(), Phase::ended)) return true;
    }
    return false;
  }

 private:
  enum class Phase : std::uint8_t { waits, runs, ended };
  using Phases = std::vector<Phase>;

  bool may_begin(const Phases& phases, std::size_t e) const {
    const auto& it = program_.entries[e];
    const bool is_call = it.what == What::collective;
    int slots = is_call && !it.uses_copy_engines ? it.slots : 0;
    for (std::size_t o = 0; o < phases.size(); ++o) {
      const auto& other = program_.entries[o];
      if (o == e || other.rank != it.rank) continue;
      const bool is_kernel = other.what == What::collective && !other.uses_copy_engines;
      if (phases[o] == Phase::runs && is_kernel && slots > 0) slots += other.slots;
      if (o > e) continue;
      if (other.stream == it.stream && phases[o] != Phase::ended) return false;
      if (is_call && is_kernel && options_.launch_order && phases[o] == Phase::waits) return false;
      if (it.what == What::wait && other.what == What::record && other.event == it.event &&
          phases[o] != Phase::ended)
        return false;
    }
    return slots <= options_.slots;
  }
  // In these programs the calls of a group have different names, on one stream.
  bool may_end(const Phases& phases, std::size_t e) const {
    if (phases[e] != Phase::runs) return false;
    const auto& it = program_.entries[e];
    for (std::size_t o = 0; o < phases.size(); ++o)
      if (it.what == What::collective && program_.entries[o].what == What::collective &&
          program_.entries[o].group == it.group && program_.entries[o].name == it.name &&
          phases[o] == Phase::waits)
        return false;
    return true;
  }

  const OrderProgram& program_;
  const OrderOptions& options_;
};

// Three ranks, and a stream for each of four groups. Ranks have the same calls and events. Calls of
// different groups may have changed places.
OrderProgram random_program(std::uint64_t seed) {
  OrderProgram program{.groups = {{"a", {0, 1, 2}}, {"b", {0, 1}}, {"c", {1, 2}}, {"d", {0, 2}}}};
  std::uint64_t draws = 0;
  const auto draw = [&](int below) {
    return static_cast<int>(philox(seed, 0, draws++)[0] % static_cast<std::uint64_t>(below));
  };
  std::vector<OrderEntry> calls;
  for (int i = 0; i < 5; ++i) {
    const int group = draw(4);
    calls.push_back({.group = group,
                     .name = std::to_string(i),
                     .stream = group,
                     .slots = 1 + draw(2),
                     .uses_copy_engines = draw(6) == 0});
  }
  std::vector<std::pair<int, int>> events;  // call i waits for the stream of another one before it
  for (int i = 1; i < 5; ++i)
    if (draw(2) == 0) events.emplace_back(i, draw(i));
  for (int rank = 0; rank < 3; ++rank) {
    auto mine = calls;
    const int i = draw(8);
    if (i < 4 && mine[i].group != mine[i + 1].group &&
        std::find(events.begin(), events.end(), std::pair(i + 1, i)) == events.end())
      std::swap(mine[i], mine[i + 1]);
    for (auto& call : mine) {
      const auto& ranks = program.groups[call.group].ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      call.rank = rank;
      const int number = std::stoi(call.name);
      for (const auto& [to, from] : events) {
        if (to == number)
          program.entries.push_back(
              {.rank = rank, .what = What::wait, .stream = call.stream, .event = to});
      }
      program.entries.push_back(call);
      for (const auto& [to, from] : events)
        if (from == number)
          program.entries.push_back(
              {.rank = rank, .what = What::record, .stream = call.stream, .event = to});
    }
  }
  return program;
}

TEST(OrderModel, finds_the_deadlocks_of_a_search_of_all_runs) {
  int deadlocks = 0, ends = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    for (const bool launch_order : {true, false}) {
      const auto program = random_program(seed);
      const OrderOptions options{.slots = 2 + static_cast<int>(seed % 2),
                                 .launch_order = launch_order};
      const auto found = find_deadlock(program, options);
      EXPECT_NE(found.substr(0, 9), "mismatch:");
      EXPECT_EQ(!found.empty(), AllRuns(program, options).deadlock()) << seed << found;
      ++(found.empty() ? ends : deadlocks);
    }
  EXPECT_GT(deadlocks, 10);
  EXPECT_GT(ends, 10);
}

// A 1F1B schedule: stage s of S runs S - s - 1 micro-batches forward, then one forward and one
// backward by turns. Between two stages, activations and gradients have a group each. In the right
// order, a stage receives activations before it sends gradients; `sends_first` is a wrong one.
OrderProgram pipeline(int stages, int micro_batches, bool sends_first) {
  OrderProgram program;
  for (const char* name : {"activations", "gradients"})
    for (int s = 0; s + 1 < stages; ++s)
      program.groups.push_back({name, {s, s + 1}});
  for (int s = 0; s < stages; ++s) {
    const int warm = stages - s - 1;
    const auto transfer = [&](int stage, char kind, int m) {  // from `stage` or to it
      if (stage < 0 || stage + 1 >= stages || m < 0 || m >= micro_batches) return;
      program.entries.push_back({.rank = s,
                                 .group = stage + (kind == 'B' ? stages - 1 : 0),
                                 .name = kind + std::to_string(m)});
    };
    const auto compute = [&](int m, double seconds) {
      if (m >= 0 && m < micro_batches)
        program.entries.push_back({.rank = s, .what = What::compute, .seconds = seconds});
    };
    transfer(s - 1, 'F', 0);
    for (int m = 0; m < micro_batches + warm; ++m) {
      compute(m, 1);
      transfer(s, 'F', m);
      if (m < warm) {
        transfer(s - 1, 'F', m + 1);
        continue;
      }
      transfer(s, 'B', m - warm);
      compute(m - warm, 2);
      if (!sends_first) transfer(s - 1, 'F', m + 1);
      transfer(s - 1, 'B', m - warm);
      if (sends_first) transfer(s - 1, 'F', m + 1);
    }
  }
  return program;
}

TEST(OrderModel, a_pipeline_that_receives_and_sends_in_one_order_ends) {
  for (const int stages : {2, 3, 4})
    for (const int micro_batches : {1, 2, 3, 5, 8}) {
      const auto program = pipeline(stages, micro_batches, false);
      EXPECT_EQ(std::ssize(program.entries), micro_batches * (4 * (stages - 1) + 2 * stages));
      EXPECT_EQ(find_deadlock(program), "") << stages << " stages, " << micro_batches;
      // A micro-batch takes 3 s on each stage, and passes all of them.
      const auto times = critical_path(program);
      EXPECT_EQ(*std::max_element(times.end.begin(), times.end.end()),
                3 * (stages - 1 + micro_batches));
    }
}

TEST(OrderModel, a_pipeline_whose_stages_both_send_first_deadlocks) {
  EXPECT_EQ(find_deadlock(pipeline(2, 1, true)), "") << "nothing is received after the first";
  for (const int stages : {2, 3, 4}) {
    const auto found =
        find_deadlock(pipeline(stages, 5, true), {.slots = 8, .launch_order = false});
    EXPECT_NE(found.find("F1, call 1 of activations has begun, waits for rank"), std::string::npos)
        << found;
  }
  auto program = pipeline(3, 4, false);
  for (auto& group : program.groups)
    group.name = "stages";
  for (auto& entry : program.entries)  // one group for both directions of two stages
    entry.group %= 2;
  EXPECT_EQ(find_deadlock(program), "");
  std::swap(program.entries[1], program.entries[3]);
  EXPECT_EQ(find_deadlock(program).substr(0, 9), "mismatch:");
}

TEST(CriticalPath, leads_through_the_last_rank_of_a_call) {
  OrderProgram program{.groups = {{"shard", {0, 1}}}};
  for (const int rank : {0, 1}) {
    const bool is_slow = rank == 1;
    const std::vector<OrderEntry> entries{
        {.rank = rank, .name = "a", .what = What::compute, .seconds = is_slow ? 5.0 : 3.0},
        {.rank = rank, .what = What::record, .event = 0},
        {.rank = rank, .what = What::wait, .stream = 1, .event = 0},
        {.rank = rank, .name = "gather", .stream = 1, .seconds = 2},
        {.rank = rank, .what = What::record, .stream = 1, .event = 1},
        {.rank = rank, .name = "b", .what = What::compute, .seconds = 3},
        {.rank = rank, .what = What::wait, .event = 1},
        {.rank = rank, .name = "c", .what = What::compute, .seconds = is_slow ? 1.0 : 4.0}};
    program.entries.insert(program.entries.end(), entries.begin(), entries.end());
  }
  const auto times = critical_path(program);
  EXPECT_EQ(times.begin, (std::vector<double>{0, 3, 3, 3, 7, 3, 7, 7, 0, 5, 5, 5, 7, 5, 8, 8}));
  EXPECT_EQ(times.end, (std::vector<double>{3, 3, 3, 7, 7, 6, 7, 11, 5, 5, 5, 7, 7, 8, 8, 9}));
  EXPECT_EQ(in_words(program, times),
            "\nrank 1, stream 0: a 0-5 "
            "\nrank 1, stream 1: gather 5-7 event"
            "\nrank 0, stream 0: c 7-11 event");
}

TEST(CriticalPath, has_waits_for_launch_order_and_slots) {
  const OrderProgram program{
      .groups = {{"shard", {0}}, {"tensor", {0}}},
      .entries = {{.name = "pack", .what = What::compute, .stream = 1, .seconds = 4},
                  {.group = 0, .name = "reduce", .stream = 1, .seconds = 10},
                  {.group = 1, .name = "sum", .stream = 0, .seconds = 1},
                  {.name = "rest", .what = What::compute, .stream = 0, .seconds = 12}}};
  const auto path = [&](const OrderOptions& options) {
    return in_words(program, critical_path(program, options));
  };
  EXPECT_EQ(path({.slots = 2}),
            "\nrank 0, stream 1: pack 0-4 "
            "\nrank 0, stream 1: reduce 4-14 stream"
            "\nrank 0, stream 0: sum 4-5 launch order"
            "\nrank 0, stream 0: rest 5-17 stream");
  EXPECT_EQ(path({.slots = 1}),
            "\nrank 0, stream 1: pack 0-4 "
            "\nrank 0, stream 1: reduce 4-14 stream"
            "\nrank 0, stream 0: sum 14-15 slots"
            "\nrank 0, stream 0: rest 15-27 stream");
  EXPECT_EQ(path({.slots = 1, .launch_order = false}),
            "\nrank 0, stream 1: pack 0-4 "
            "\nrank 0, stream 1: reduce 4-14 stream");
}

TEST(CriticalPath, has_the_calls_of_a_group_one_after_the_other) {
  const OrderProgram program{.groups = {{"shard", {0}}},
                             .entries = {{.name = "first", .stream = 0, .seconds = 2},
                                         {.name = "second", .stream = 1, .seconds = 2}}};
  EXPECT_EQ(in_words(program, critical_path(program, {.slots = 2})),
            "\nrank 0, stream 0: first 0-2 "
            "\nrank 0, stream 1: second 2-4 group");
}

TEST(OrderModel, a_wait_before_the_record_of_its_event_is_an_error) {
  const OrderProgram program{
      .entries = {{.what = What::wait, .stream = 1}, {.what = What::record, .stream = 0}}};
  EXPECT_THROW(find_deadlock(program), Error);
}

TEST(CriticalPath, of_a_program_that_does_not_end_is_an_error) {
  EXPECT_THROW(critical_path(opposite_orders()), Error);
}

}  // namespace lockstep::testing::order_model_test
