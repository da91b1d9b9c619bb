// The simulator finds mistakes. Each mistake is planted in a kernel that is otherwise correct.
#include "tests/simt/simt.h"

#include <regex>
#include <thread>

#include "core/graph.h"
#include "kernels/elementwise.h"
#include "tests/cuda/twins.h"
#include "tests/simt/planted.cuh"

extern "C" void __tsan_read4(void* address);  // NOLINT: what g++ calls before it reads

namespace lockstep::testing::simt_test {

struct Planted {
  Mistake mistake;
  const char *name, *message;  // message: a regular expression for that of the simulator
};

class Simt : public ::testing::TestWithParam<Planted> {};

// The order of threads decides which of the two messages appears.
constexpr auto kUnordered = "nothing orders the two|no thread of its block wrote";

void sum_on_gpu(Mistake mistake, std::uint64_t seed) {
  simt::set_seed(seed);
  Twins t(seed);
  const auto values = t.random({64}, DType::fp32), sum = t.poisoned({1}, DType::fp32);
  sum_with(mistake, t.stream(), sum.device, values.device);
  const auto expected = doubles(values.host);
  double total = 0;
  for (const double v : expected)
    total += v;
  expect_close(t.download(sum.device), {total}, 1e-5, "sum", 1);
}

TEST(Simt, a_correct_kernel_is_correct_in_any_order_of_threads) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    sum_on_gpu(Mistake::none, seed);
}

TEST_P(Simt, finds_the_mistake_in_any_order_of_threads) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    try {
      sum_on_gpu(GetParam().mistake, seed);
      ADD_FAILURE() << "seed " << seed << ": nothing is found";
    } catch (const simt::Violation& found) {
      EXPECT_TRUE(std::regex_search(found.what(), std::regex(GetParam().message))) << found.what();
    }
    sum_on_gpu(Mistake::none, seed);  // the simulator continues
  }
}
INSTANTIATE_TEST_SUITE_P(
    all, Simt,
    ::testing::Values(
        Planted{Mistake::no_barrier, "no_barrier", kUnordered},
        Planted{Mistake::no_barrier_behind_read, "no_barrier_behind_read",
                "nothing orders the two"},
        Planted{Mistake::barrier_not_for_all, "barrier_not_for_all", kUnordered},
        Planted{Mistake::ended_before_barrier, "ended_before_barrier",
                "never reaches: it has ended"},
        Planted{Mistake::write_behind_the_end, "write_behind_the_end",
                "writes 4 bytes 0 bytes behind the end of a tensor"},
        Planted{Mistake::read_behind_the_end, "read_behind_the_end",
                "reads 4 bytes 0 bytes behind the end of a tensor"},
        Planted{Mistake::read_before_the_begin, "read_before_the_begin", "reads 4 bytes "},
        Planted{Mistake::shared_behind_the_end, "shared_behind_the_end", "leaves a shared array"},
        Planted{Mistake::dynamic_behind_the_end, "dynamic_behind_the_end",
                "at 256 of 256 bytes of shared memory"},
        Planted{Mistake::shared_never_written, "shared_never_written",
                "reads shared memory that no thread of its block wrote"},
        Planted{Mistake::lane_not_in_mask, "lane_not_in_mask", "without itself in the mask"},
        Planted{Mistake::mask_of_ended_lanes, "mask_of_ended_lanes", "never reaches"},
        Planted{Mistake::masks_differ, "masks_differ", "__shfl_sync"},
        Planted{Mistake::shuffle_from_outside, "shuffle_from_outside", "which is not in the mask"},
        Planted{Mistake::blocks_write_the_same, "blocks_write_the_same",
                "a thread of another block"},
        Planted{Mistake::misaligned_pack, "misaligned_pack", "not a multiple"}),
    [](const auto& p) { return std::string(p.param.name); });

TEST(Simt, the_host_cannot_touch_device_memory) {
  Twins t(1);
  const auto values = t.random({64}, DType::fp32);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(values.device.as<float>()[0] = 1.0f, "");
}

TEST(Simt, work_for_another_stream_during_a_capture_is_found) {
  Twins t(1);
  const auto values = t.random({64}, DType::fp32);
  Stream other({Device::Kind::cuda, 0}, "other");
  Graph graph;
  EXPECT_THROW(graph.run(t.stream(), [&] { fill(other, values.device, 0.0f); }), simt::Violation);
}

// Work of two streams on the same tensor, in each order, with and without synchronization.
struct SimtStreams : ::testing::Test {
  Twins t{1};
  const Tensor values = t.random({64}, DType::fp32).device;
  const Tensor rounded = t.random({64}, DType::bf16).device;
  Stream other{{Device::Kind::cuda, 0}, "other"};
  Arena pinned{{Device::Kind::cuda, 0}, Arena::Memory::pinned_host, 1024};
  const Tensor host = pinned.allocate("host", DType::fp32, {64});

  using Act = std::function<void(Stream&)>;
  const Act write = [this](Stream& s) { fill(s, values, 1.0f); };
  const Act read = [this](Stream& s) { convert(s, rounded, values); };
  const Act copy_in = [this](Stream& s) { s.copy(values, host); };
  const Act copy_out = [this](Stream& s) { s.copy(host, values); };

  void expect_found(const Act& first, const Act& second) {
    first(t.stream());
    EXPECT_THROW(second(other), simt::Violation);
    other.synchronize();
    t.stream().synchronize();
  }
};

TEST_F(SimtStreams, unordered_work_is_found) {
  expect_found(write, write);
  expect_found(write, read);
  expect_found(write, copy_in);
  expect_found(write, copy_out);
  expect_found(read, write);
  expect_found(read, copy_in);
  expect_found(copy_in, read);
  expect_found(copy_in, copy_out);
  expect_found(copy_out, write);
  expect_found(copy_out, copy_in);
  expect_found(copy_out, copy_out);
}

TEST_F(SimtStreams, events_and_waits_of_the_host_order_work) {
  const std::vector<Act> all{write, read, copy_in, copy_out};
  for (const auto& first : all)
    for (const auto& second : all) {
      first(t.stream());
      other.wait(t.stream().record());
      second(other);
      other.record().synchronize();
      first(t.stream());
      t.stream().synchronize();
      second(other);
      other.synchronize();
    }
  read(t.stream());
  copy_out(other);  // both read
}

TEST_F(SimtStreams, an_event_orders_only_earlier_work) {
  write(t.stream());
  const Event event = t.stream().record();
  write(t.stream());
  other.wait(event);
  EXPECT_THROW(read(other), simt::Violation);
  Stream third({Device::Kind::cuda, 0}, "third");
  third.wait(t.stream().record());
  other.wait(third.record());  // through a third stream
  read(other);
}

// Launchers are compiled like kernels, and may run while another host thread runs a kernel.
TEST(Simt, another_host_thread_is_not_part_of_a_kernel) {
  Twins t(1);
  const auto memory = t.poisoned({4}, DType::fp32);
  auto* behind = static_cast<std::byte*>(memory.device.data) + 256;  // outside all tensors
  int reads = 0;
  simt::launch({1, 1, 1}, {1, 1, 1}, 0, [&] {
    std::thread([&] {
      __tsan_read4(behind);
      ++reads;
    }).join();
  });
  EXPECT_EQ(reads, 1);
}

TEST(Simt, copies_need_pinned_memory_and_stay_inside_tensors) {
  Twins t(1);
  const auto values = t.random({64}, DType::fp32);
  EXPECT_THROW(t.stream().copy(values.device, values.host), simt::Violation);
  auto longer = values.device;
  longer.shape = {128};
  EXPECT_THROW(t.download(longer), simt::Violation);
}

}  // namespace lockstep::testing::simt_test
