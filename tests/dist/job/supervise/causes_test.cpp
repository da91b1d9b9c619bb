#include "dist/job/supervise/causes.h"

#include <csignal>
#include <gtest/gtest.h>

namespace lockstep::testing::causes_test {

using std::chrono::hours;
using std::chrono::minutes;
using enum CauseKind;

// Two hosts with two ranks each: ranks 0 and 1 on n1, ranks 2 and 3 on n2.
Evidence failed(std::vector<RankEnd> ends) {
  return {.attempt = {.number = 7, .places = {"n1", "n2"}},
          .slots = 2,
          .ends = std::move(ends),
          .saved_step = 10,
          .last_step = 14};
}
RankEnd end(int rank, int exit_code, std::string error = "") {
  return {.rank = rank, .exit_code = exit_code, .error = std::move(error)};
}
RankEnd ended_with_lost(int rank, std::vector<std::string> lost) {
  return {.rank = rank, .exit_code = 75, .error = "rank 2 stopped answering", .lost = lost};
}
RankEnd verdict(int rank) {
  return end(rank, 75, "rank 2 (host n2) died");
}

struct Row {
  const char* what;
  Evidence evidence;
  CauseKind kind;
  std::vector<std::string> hosts;
};

std::vector<Row> rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* what, Evidence evidence, CauseKind kind,
                       std::vector<std::string> hosts = {}) {
    rows.push_back({what, std::move(evidence), kind, std::move(hosts)});
  };
  add("all ranks end with 0", failed({end(0, 0), end(1, 0), end(2, 0), end(3, 0)}), done);
  auto asked_to_stop = failed({end(0, 75), end(2, 75)});
  asked_to_stop.asked = "SIGTERM";
  add("a user stops the run", asked_to_stop, asked);
  add("all ranks save and stop after a signal", failed({end(0, 75), end(3, 75)}), asked);
  add("a rank is killed", failed({end(2, 128 + SIGKILL), verdict(0), verdict(3)}), process, {"n2"});
  add("the verdict of the others arrives first", failed({verdict(0), end(2, 128 + SIGSEGV)}),
      process, {"n2"});
  auto lost = failed({ended_with_lost(0, {"n2"}), end(1, 75, "rank 2 stopped answering")});
  lost.gone = {"n2"};
  add("a host does not answer", lost, host_lost, {"n2"});
  auto unattended = failed({end(0, 128 + SIGSEGV)});
  unattended.gone = {"n2"};
  add("a rank dies while the agent of another host is away", unattended, process, {"n1"});
  auto silent = failed({end(0, 75, "connection lost")});
  silent.gone = {"n2"};
  add("a host is gone, and no rank knows why", silent, host_lost, {"n2"});
  auto stuck = failed({ended_with_lost(0, {"n2"})});
  stuck.stuck = {"n2"};
  add("a process cannot be killed", stuck, host_stuck, {"n2"});
  add("a rank stalls", failed({ended_with_lost(0, {"n2"}), end(2, 75)}), hang, {"n2"});
  auto memory = failed({{.rank = 3, .exit_code = 137, .out_of_memory = true}, verdict(0)});
  add("the kernel ends a rank for its memory", memory, host_memory, {"n2"});
  auto gpu_fault = failed({end(1, 1, "CUDA error"), verdict(2)});
  gpu_fault.xids["n1"] = {79};
  add("a GPU is off the bus", gpu_fault, gpu, {"n1"});
  auto gpu_process = failed({end(1, 1, "CUDA error"), verdict(2)});
  gpu_process.xids["n1"] = {31};
  add("a process uses a GPU wrongly", gpu_process, program, {"n1"});
  auto wrong = failed({end(0, 75, "weights differ"), end(2, 75, "weights differ")});
  wrong.ends[1].faulty = {"n2"};
  add("weights differ", wrong, corruption, {"n2"});
  add("a user stops the run by a request",
      failed({end(0, 130), end(2, 75, "it ended while no agent watched it")}), asked);
  add("the configuration is wrong", failed({end(3, 78, "unknown key"), verdict(0)}), configuration,
      {"n2"});
  add("the disk is full", failed({end(0, 74, "no space"), verdict(2)}), storage);
  add("ranks lose their connections", failed({end(0, 75, "connection reset"), end(2, 75)}),
      network);
  auto late = failed({end(0, 0), end(1, 0)});
  late.late = {"n2"};
  add("ranks do not end after rank 0, which ended the run", late, done);
  late.ends = {end(2, 0), end(3, 0)};
  late.late = {"n1"};
  add("rank 0 does not end after the others", late, hang, {"n1"});
  late.late.clear();
  late.gone = {"n1"};
  add("the host of rank 0 is lost at the end", late, host_lost, {"n1"});
  late.gone.clear();
  add("rank 0 does not report its end", late, network);
  auto unwatched = failed({end(0, 0), end(2, 75, "no agent watched")});
  unwatched.ends[1].unwatched = true;
  add("an agent did not see how ranks ended", unwatched, done);
  auto common = failed({end(0, 1, "rank 2 failed: no token counts"), end(2, 1, "no token counts")});
  common.ends[0].is_verdict = true;
  add("the verdict has the exit code of the failed rank", common, program, {"n2"});
  common.ends[1].is_common = true;
  add("each rank would have the error", common, program, {"n1", "n2"});
  add("all ranks have the same error", failed({end(3, 1, "loss 1e9"), end(0, 1, "loss 1e8")}),
      program, {"n1", "n2"});
  add("the loss is not finite", failed({end(0, 1, "10 updates were skipped"), verdict(2)}), program,
      {"n1"});
  return rows;
}

TEST(Causes, are_found_by_a_table) {
  for (const auto& row : rows()) {
    const auto cause = classify(row.evidence);
    EXPECT_EQ(name(cause.kind), std::string(name(row.kind))) << row.what << ": " << cause.text;
    EXPECT_EQ(cause.hosts, row.hosts) << row.what;
  }
}

TEST(Causes, have_names_that_can_be_read_again) {
  for (const auto& row : rows())
    EXPECT_EQ(kind_of(name(row.kind)), row.kind);
  EXPECT_THROW(kind_of("?"), DataError);
}

TEST(Causes, read_the_number_of_an_xid_line) {
  EXPECT_EQ(xid_of("6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
            79);
  EXPECT_EQ(xid_of("NVRM: Xid (PCI:0000:3b:00"), 0);
  EXPECT_EQ(xid_of("usb 1-1: new device"), 0);
  EXPECT_EQ(severity(79), XidSeverity::exclude);
  EXPECT_EQ(severity(31), XidSeverity::restart);
  EXPECT_EQ(severity(1), XidSeverity::none);
}

struct Policy {
  Decision decide(const Evidence& evidence) {
    return policy.decide(classify(evidence), evidence, now);
  }
  RestartPolicy policy;
  Deadline now = Deadline() + hours(1000);
};

// A rank of n2 was killed; the run had saved this step.
Evidence killed(std::int64_t saved, int rank = 2, int signal = SIGKILL) {
  auto evidence = failed({end(rank, 128 + signal)});
  evidence.saved_step = saved;
  evidence.last_step = saved + 1;
  return evidence;
}

TEST(RestartPolicy, restarts_at_once_after_progress) {
  Policy policy;
  for (int step = 1; step <= 10; ++step) {
    const auto decision = policy.decide(killed(step, step % 2 == 0 ? 0 : 2));
    EXPECT_TRUE(decision.restarts);
    EXPECT_EQ(decision.pause, Milliseconds(0));
    policy.now += hours(1);
  }
}

TEST(RestartPolicy, waits_longer_without_progress_and_then_gives_up) {
  Policy policy;
  std::vector<std::int64_t> pauses;
  for (int start = 0;; ++start) {
    ASSERT_LT(start, 10);
    const auto decision = policy.decide(killed(5, start % 2 == 0 ? 0 : 2));
    if (!decision.restarts) break;
    pauses.push_back(decision.pause.count() / 1000);
    policy.now += hours(2);
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{0, 5, 15, 60, 300}));
}

TEST(RestartPolicy, ends_after_too_many_restarts_within_an_hour) {
  Policy policy;
  int restarts = 0;
  for (int step = 1; policy.decide(killed(step, step % 2 == 0 ? 0 : 2)).restarts; ++step)
    ASSERT_LT(++restarts, 100);
  EXPECT_EQ(restarts, PolicyOptions().most_an_hour);
}

TEST(RestartPolicy, excludes_a_host_after_its_second_fault_within_an_hour) {
  Policy policy;
  EXPECT_TRUE(policy.decide(killed(1)).exclude.empty());
  policy.now += minutes(61);
  EXPECT_TRUE(policy.decide(killed(2)).exclude.empty());
  policy.now += minutes(10);
  EXPECT_EQ(policy.decide(killed(3)).exclude, std::vector<std::string>{"n2"});
  EXPECT_TRUE(policy.policy.is_excluded("n2", policy.now));
  policy.now += minutes(61);
  EXPECT_FALSE(policy.policy.is_excluded("n2", policy.now));
  // The second exclusion lasts until the run ends.
  policy.decide(killed(4));
  policy.now += minutes(1);
  policy.decide(killed(5));
  policy.now += hours(1000);
  EXPECT_TRUE(policy.policy.is_excluded("n2", policy.now));
}

TEST(RestartPolicy, excludes_a_host_with_a_faulty_gpu_at_once) {
  Policy policy;
  auto evidence = failed({end(1, 1, "CUDA error")});
  evidence.xids["n1"] = {79};
  EXPECT_EQ(policy.decide(evidence).exclude, std::vector<std::string>{"n1"});
}

TEST(RestartPolicy, does_not_restart_if_a_retry_cannot_help) {
  for (const int code : {64, 65, 77, 78}) {
    Policy policy;
    const auto decision = policy.decide(failed({end(0, code, "wrong")}));
    EXPECT_FALSE(decision.restarts);
    EXPECT_EQ(decision.exit_code, code);
  }
}

TEST(RestartPolicy, ends_if_the_same_error_follows_a_step_to_another_host) {
  Policy policy;
  EXPECT_TRUE(policy.decide(killed(5, 0, SIGSEGV)).restarts);
  const auto decision = policy.decide(killed(5, 2, SIGSEGV));
  EXPECT_FALSE(decision.restarts);
  EXPECT_EQ(decision.exit_code, 1);
  // Not at another step, not on the same host, and not if something from outside killed it.
  for (const auto& second : {killed(6, 2, SIGSEGV), killed(5, 0, SIGSEGV), killed(5, 2)}) {
    Policy other;
    EXPECT_TRUE(other.decide(killed(5, 0, SIGSEGV)).restarts);
    EXPECT_TRUE(other.decide(second).restarts);
  }
}

TEST(RestartPolicy, tells_an_error_of_the_data_from_one_of_a_host) {
  auto crash = killed(5, 2, SIGSEGV);
  crash.can_move = true;
  Policy policy;
  EXPECT_EQ(policy.decide(crash).move, "");
  // A GPU computed one step more than the recorded ones. Ranks report it then.
  crash.ends[0].step = 8;
  const auto second = policy.decide(crash);
  EXPECT_EQ(second.move, "n2");
  EXPECT_EQ(second.noted_step, 8);
  EXPECT_TRUE(second.exclude.empty()) << "it may be the data";
  auto stays = crash, follows = crash;
  stays.attempt.places = {"n2", "n1"};
  stays.ends[0].rank = 0;  // n2 computes other ranks
  auto other = policy;
  EXPECT_EQ(other.decide(stays).exclude, std::vector<std::string>{"n2"});
  other = policy;
  EXPECT_EQ(other.decide(crash).move, "n2") << "no other host was there";
  follows.ends[0].rank = 0;  // of n1
  EXPECT_FALSE(policy.decide(follows).restarts);
  // A report of an older step has no effect.
  crash.ends[0].step = 3;
  EXPECT_EQ(Policy().decide(crash).noted_step, 7);
}

TEST(RestartPolicy, tells_an_error_of_a_start_from_one_of_a_step) {
  auto start = failed({end(2, 1, "cannot open the GPU")});
  start.can_move = true;
  Policy policy;
  EXPECT_EQ(policy.decide(start).move, "");
  start.noted_step = 15;  // no rank reported it
  EXPECT_EQ(policy.decide(start).move, "n2");
  auto other = policy;
  auto follows = start, stays = start;
  follows.ends[0].rank = 0;
  EXPECT_TRUE(other.decide(follows).restarts) << "it is not the data of step 15";
  stays.attempt.places = {"n2", "n1"};
  stays.ends[0].rank = 0;
  EXPECT_EQ(policy.decide(stays).exclude, std::vector<std::string>{"n2"});
}

TEST(RestartPolicy, blames_the_step_if_no_other_host_can_compute_it) {
  Policy policy;
  const auto crash = killed(5, 2, SIGSEGV);
  EXPECT_TRUE(policy.decide(crash).restarts);
  EXPECT_TRUE(policy.decide(crash).restarts);
  EXPECT_FALSE(policy.decide(crash).restarts);
}

TEST(RestartPolicy, leaves_out_the_data_of_a_step_once_if_it_may) {
  Policy policy{.policy = RestartPolicy({.skips = true})};
  auto crash = killed(5, 2, SIGSEGV);
  policy.decide(killed(5, 0, SIGSEGV));
  crash.noted_step = 7;
  EXPECT_EQ(Policy(policy).decide(crash).skip_step, 0) << "the start did not reach the step";
  crash.ends[0].step = 7;
  const auto skips = policy.decide(crash);
  EXPECT_TRUE(skips.restarts);
  EXPECT_EQ(skips.skip_step, 7);
  EXPECT_FALSE(policy.decide(killed(5, 0, SIGSEGV)).restarts);
}

TEST(RestartPolicy, ends_if_a_saved_run_is_missing) {
  Policy policy;
  EXPECT_TRUE(policy.decide(killed(5)).restarts);
  const auto decision = policy.decide(killed(kNone, 0));
  EXPECT_FALSE(decision.restarts);
  EXPECT_EQ(decision.exit_code, 65);
  // Storage that does not answer tells nothing about progress.
  Policy other;
  EXPECT_TRUE(other.decide(killed(5)).restarts);
  EXPECT_EQ(other.decide(killed(kUnknown, 0)).pause, Milliseconds(0));
}

TEST(RestartPolicy, ends_if_memory_of_a_host_is_short_twice) {
  Policy policy;
  auto evidence = failed({{.rank = 3, .exit_code = 137, .out_of_memory = true}});
  EXPECT_TRUE(policy.decide(evidence).restarts);
  const auto decision = policy.decide(evidence);
  EXPECT_FALSE(decision.restarts);
  EXPECT_EQ(decision.exit_code, 78);
}

TEST(RestartPolicy, readmits_the_host_with_the_fewest_faults_but_no_broken_one) {
  Policy policy;
  policy.decide(killed(1));
  policy.decide(killed(2));
  policy.policy.exclude("n3", false, policy.now);
  policy.policy.exclude("n4", true, policy.now);
  const std::vector<std::string> hosts{"n2", "n3", "n4", "n5"};
  EXPECT_EQ(policy.policy.readmit(hosts, policy.now), "n3");
  EXPECT_EQ(policy.policy.readmit(hosts, policy.now), "n2");
  EXPECT_EQ(policy.policy.readmit(hosts, policy.now), "");
}

}  // namespace lockstep::testing::causes_test
