#include "core/graph.h"

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::graph_test {

// sum += the squares of 3000 numbers, with scratch that is released.
struct GraphCuda : ::testing::Test {
  Twins t{1};
  const Twin x = t.random({3000}, DType::fp32), sum = t.random({1}, DType::fp32, 0.0f);
  int asked = 0;
  double read() { return get(t.download(sum.device), 0); }
  void add() {
    ++asked;
    const ConstTensor all = x.device;
    sum_of_squares(t.stream(), t.arena(), sum.device, {&all, 1});
  }
};

TEST_F(GraphCuda, each_run_does_the_work_once_and_only_the_first_enqueues_it) {
  add();
  const double once = read();
  ASSERT_GT(once, 1);
  fill(t.stream(), sum.device, 0.0f);
  Graph graph;
  for (int run = 1; run <= 4; ++run) {
    graph.run(t.stream(), [&] { add(); });
    EXPECT_NEAR(read(), run * once, 1e-5 * run * once);
  }
  EXPECT_EQ(asked, 2);
}

TEST_F(GraphCuda, a_run_uses_the_current_values_of_device_memory) {
  add();
  Graph graph;
  for (const float value : {1.0f, 2.0f}) {
    fill(t.stream(), x.device, value);
    fill(t.stream(), sum.device, 0.0f);
    graph.run(t.stream(), [&] { add(); });
    EXPECT_EQ(read(), 3000 * value * value);
  }
}

TEST_F(GraphCuda, scratch_may_be_reused_between_runs) {
  add();
  const double once = read();
  fill(t.stream(), sum.device, 0.0f);
  Graph graph;
  graph.run(t.stream(), [&] { add(); });
  {
    const Arena::Scope scope(t.arena());
    fill(t.stream(), t.arena().allocate("other", DType::fp32, {100000}), 5.0f);
  }
  graph.run(t.stream(), [&] { add(); });
  EXPECT_NEAR(read(), 2 * once, 1e-5 * once);
}

TEST_F(GraphCuda, a_wait_during_a_capture_is_an_error_and_the_stream_continues) {
  add();
  Graph graph;
  EXPECT_THROW(graph.run(t.stream(), [&] { t.stream().synchronize(); }), Error);
  fill(t.stream(), sum.device, 0.0f);
  graph.run(t.stream(), [&] { add(); });
  EXPECT_GT(read(), 1);
}

TEST_F(GraphCuda, work_that_throws_during_a_capture_has_no_effect_and_the_stream_continues) {
  add();
  const double once = read();
  Graph graph;
  const auto add_and_throw = [&] {
    add();
    throw Error("planted");
  };
  EXPECT_THROW(graph.run(t.stream(), add_and_throw), Error);
  EXPECT_EQ(read(), once);
  graph.run(t.stream(), [&] { add(); });
  EXPECT_NEAR(read(), 2 * once, 1e-5 * once);
}

}  // namespace lockstep::testing::graph_test
