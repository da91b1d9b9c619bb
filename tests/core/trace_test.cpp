#include "core/trace.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "core/function_ref.h"
#include "core/op_log.h"
#include "tests/files.h"

namespace lockstep::testing::trace_test {

void work(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

Op op_of(Op::Kind kind, const char* group = "") {
  Op op;
  op.name = "toy";
  op.kind = kind;
  op.group = group;
  return op;
}

// A timed step on a stream of its own, with a clock beside it.
struct Timed {
  explicit Timed(FunctionRef<void(Stream&)> step) {
    Stream stream(Device{}, "compute");
    Trace trace(stream);
    const auto begin = std::chrono::steady_clock::now();
    trace.begin_step(true);
    step(stream);
    trace.end_step();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    time = trace.take();
  }
  StepTime time;
  double seconds = 0;
};

// Sleeps take a little longer than they were told to; the parts are compared with the whole.
constexpr double kSlack = 1e-3;

TEST(Trace, components_sum_to_the_step_and_other_is_what_no_span_has) {
  const Timed step([](Stream& stream) {
    work(2);
    {
      const OpLog::Call call(stream, op_of(Op::Kind::product));
      work(6);
    }
    {
      const Trace::Span span(stream, Component::data);
      work(3);
    }
    work(2);
  });
  EXPECT_NEAR(step.time.total(), step.seconds, kSlack);
  EXPECT_GE(step.time[Component::products], 6e-3);
  EXPECT_GE(step.time[Component::data], 3e-3);
  EXPECT_GE(step.time[Component::other], 4e-3);
  EXPECT_EQ(step.time[Component::memory_bound], 0);
}

TEST(Trace, the_time_of_an_inner_span_is_not_the_outers) {
  const Timed step([](Stream& stream) {
    const Trace::Span outer(stream, Component::optimizer);
    work(3);
    {
      const OpLog::Call call(stream, op_of(Op::Kind::collective, "all ranks"));
      work(9);
    }
    const OpLog::Call call(stream, op_of(Op::Kind::memory));  // of an optimizer: its own
    work(3);
  });
  EXPECT_NEAR(step.time.total(), step.seconds, kSlack);
  EXPECT_GE(step.time[Component::communication_ranks], 9e-3);
  EXPECT_GE(step.time[Component::optimizer], 6e-3);
  EXPECT_LT(step.time[Component::optimizer], step.seconds - 9e-3);
  EXPECT_EQ(step.time[Component::memory_bound], 0);
}

TEST(Trace, what_an_operator_calls_itself_is_part_of_it) {
  const Timed step([](Stream& stream) {
    const OpLog::Call call(stream, op_of(Op::Kind::attention));
    const OpLog::Call part(stream, op_of(Op::Kind::memory));
    work(4);
  });
  EXPECT_GE(step.time[Component::attention], 4e-3);
  EXPECT_EQ(step.time[Component::memory_bound], 0);
}

TEST(Trace, operators_are_counted_as_a_plan_counts_them) {
  for (const auto& [kind, group, component] :
       {std::tuple(Op::Kind::product, "", Component::products),
        std::tuple(Op::Kind::attention, "", Component::attention),
        std::tuple(Op::Kind::memory, "", Component::memory_bound),
        std::tuple(Op::Kind::transfer, "", Component::communication_host),
        std::tuple(Op::Kind::collective, "tensor", Component::communication_tensor),
        std::tuple(Op::Kind::collective, "shard gathers", Component::communication_shard),
        std::tuple(Op::Kind::collective, "replicate across", Component::communication_replicate),
        std::tuple(Op::Kind::collective, "all ranks", Component::communication_ranks)})
    EXPECT_EQ(component_of(op_of(kind, group), Component::other), component) << name(component);
}

TEST(Trace, a_step_that_is_not_timed_is_not_known_and_nothing_outside_of_steps_counts) {
  Stream stream(Device{}, "compute");
  Trace trace(stream);
  const auto span = [&] {
    const Trace::Span products(stream, Component::products);
    work(1);
  };
  trace.begin_step(false);
  span();
  trace.end_step();
  for (const double seconds : trace.take().seconds)
    EXPECT_TRUE(std::isnan(seconds));
  span();
  trace.begin_step(true);
  trace.end_step();
  EXPECT_EQ(trace.take()[Component::products], 0);
  EXPECT_EQ(trace.take().total(), 0);  // no step is left
}

TEST(Trace, steps_are_taken_in_their_order_and_two_are_kept) {
  Stream stream(Device{}, "compute");
  Trace trace(stream);
  for (const double milliseconds : {1.0, 4.0, 12.0}) {
    trace.begin_step(true);
    work(milliseconds);
    trace.end_step();
  }
  const double second = trace.take().total(), third = trace.take().total();
  EXPECT_GE(second, 4e-3);
  EXPECT_LT(second, third);
  EXPECT_GE(third, 12e-3);
  EXPECT_EQ(trace.take().total(), 0);
}

TEST(Trace, of_a_stream_is_one) {
  Stream stream(Device{}, "compute");
  {
    const Trace trace(stream);
    expect_contains(message_of<Error>([&] { const Trace second(stream); }), "has a trace already");
  }
  const Trace third(stream);
}

}  // namespace lockstep::testing::trace_test
