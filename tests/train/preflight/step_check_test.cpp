#include "train/preflight/step_check.h"

#include <thread>

#include "tests/train/preflight/preflight_rig.h"

namespace lockstep::testing {
namespace {

TEST(StepCheck, a_steps_own_time_leaves_collectives_out) {
  Stream stream(Device{}, "compute");
  std::vector<std::unique_ptr<OpLog>> logs;
  std::vector<const OpLog*> steps;
  const auto call = [&](Op::Kind kind, int milliseconds) {
    Op op;
    op.name = "a_call";
    op.kind = kind;
    const OpLog::Call here(stream, op);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  };
  for (const int milliseconds : {30, 400, 10}) {  // of steps, of which one is disturbed
    steps.push_back(logs.emplace_back(std::make_unique<OpLog>()).get());
    stream.set_op_log(logs.back().get());
    call(Op::Kind::memory, milliseconds / 2);
    call(Op::Kind::collective, 300);
    call(Op::Kind::product, milliseconds / 2);
    stream.set_op_log(nullptr);
  }
  EXPECT_GE(own_seconds(steps), 0.03);
  EXPECT_LT(own_seconds(steps), 0.3);
}

}  // namespace
}  // namespace lockstep::testing
