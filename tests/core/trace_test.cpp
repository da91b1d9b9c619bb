#include "core/trace.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "core/function_ref.h"
#include "core/op_log.h"
#include "tests/wording.h"

namespace lockstep::testing::trace_test {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
void work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

Op op_of(Op::Kind kind) {
  Op op;
  op.name = "toy";
  op.kind = kind;
  return op;
}

// A timed step on a separate stream. Its total lies between two readings of a clock. Sleeps take at
// least the requested time.
StepTime timed(FunctionRef<void(Stream&)> step) {
  Stream stream(Device{}, "compute");
  Trace trace(stream);
  const auto outside = Clock::now();
  trace.begin_step(true);
  const auto inside = Clock::now();
  step(stream);
  const double least = seconds_since(inside);
  trace.end_step();
  const double most = seconds_since(outside);
  const auto time = trace.take();
  EXPECT_GE(time.total(), least - 1e-9);  // the sum of the components is rounded
  EXPECT_LE(time.total(), most + 1e-9);
  return time;
}

TEST(Trace, components_sum_to_the_step_and_other_is_time_outside_spans) {
  const auto time = timed([](Stream& stream) {
    work(1);
    {
      const OpLog::Call call(stream, op_of(Op::Kind::product));
      work(3);
    }
    {
      const Trace::Span span(stream, Component::data);
      work(2);
    }
    {  // operators that an operator calls are part of it
      const OpLog::Call call(stream, op_of(Op::Kind::attention));
      const OpLog::Call part(stream, op_of(Op::Kind::memory));
      work(2);
    }
    work(1);
  });
  EXPECT_GE(time[Component::products], 3e-3);
  EXPECT_GE(time[Component::data], 2e-3);
  EXPECT_GE(time[Component::attention], 2e-3);
  EXPECT_GE(time[Component::other], 2e-3);
  EXPECT_EQ(time[Component::memory_bound], 0);
}

TEST(Trace, the_time_of_an_inner_span_does_not_count_for_the_outer) {
  double whole = 0;
  const auto time = timed([&](Stream& stream) {
    const auto begin = Clock::now();
    {
      const Trace::Span outer(stream, Component::optimizer);
      work(1);
      {
        const OpLog::Call call(stream, op_of(Op::Kind::collective));
        work(4);
      }
      const OpLog::Call call(stream, op_of(Op::Kind::memory));  // inside an optimizer span
      work(1);
    }
    whole = seconds_since(begin);
  });
  EXPECT_GE(time[Component::communication_ranks], 4e-3);
  EXPECT_GE(time[Component::optimizer], 2e-3);
  EXPECT_LT(time[Component::optimizer], whole - 4e-3);
  EXPECT_EQ(time[Component::memory_bound], 0);
}

TEST(Trace, operators_are_counted_as_a_plan_counts_them) {
  for (const auto& [kind, component] :
       {std::pair(Op::Kind::product, Component::products),
        std::pair(Op::Kind::attention, Component::attention),
        std::pair(Op::Kind::memory, Component::memory_bound),
        std::pair(Op::Kind::transfer, Component::communication_host),
        std::pair(Op::Kind::collective, Component::communication_ranks)})
    EXPECT_EQ(component_of(op_of(kind), Component::other), component) << name(component);
  Op op = op_of(Op::Kind::collective);
  op.group = Group::gathers;
  EXPECT_EQ(component_of(op, Component::optimizer), Component::communication_shard);
}

TEST(Trace, an_untimed_step_is_unknown_and_time_outside_steps_does_not_count) {
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

TEST(Trace, steps_are_taken_in_order_and_two_are_kept) {
  Stream stream(Device{}, "compute");
  Trace trace(stream);
  for (const int milliseconds : {1, 2, 8}) {
    trace.begin_step(true);
    work(milliseconds);
    trace.end_step();
  }
  const double second = trace.take().total(), third = trace.take().total();
  EXPECT_GE(second, 2e-3);
  EXPECT_GE(third, 8e-3);
  EXPECT_EQ(trace.take().total(), 0);
}

TEST(Trace, a_stream_has_only_one) {
  Stream stream(Device{}, "compute");
  {
    const Trace trace(stream);
    expect_refusal<Error>("core/trace", "a second one", {}, [&] { const Trace second(stream); });
  }
  const Trace third(stream);
}

}  // namespace lockstep::testing::trace_test
