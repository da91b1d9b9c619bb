#include "dist/job/supervise/agent.h"

#include <gtest/gtest.h>

namespace lockstep::testing::supervise_agent_test {

template <class Action>
const Action* find(const AgentActions& actions) {
  for (const auto& action : actions)
    if (const auto* found = std::get_if<Action>(&action)) return found;
  return nullptr;
}
template <class Message>
const Message* sent(const AgentActions& actions) {
  for (const auto& action : actions)
    if (const auto* to = std::get_if<SendToLeader>(&action))
      if (const auto* found = std::get_if<Message>(&to->message)) return found;
  return nullptr;
}

struct Host {
  AgentActions look(const Records& records) {
    now += Milliseconds(300);
    EXPECT_TRUE(find<Look>(agent.time(now)));
    return agent.looked(records, now);
  }
  void join() {
    EXPECT_TRUE(find<ConnectTo>(look({.newest = {.number = 1}, .alive = "1 1"})));
    EXPECT_TRUE(sent<Join>(agent.connected(now)));
  }
  void run() {
    join();
    agent.message(Prepare{.attempt = 7}, now);
    agent.checked({.attempt = 7}, now);
    EXPECT_TRUE(find<StartRanks>(agent.message(Start{.place = {.attempt = 7}}, now)));
  }
  Deadline now = Deadline() + std::chrono::hours(1000);
  Agent agent{AgentOptions{}, now};
};

TEST(SuperviseAgent, claims_a_term_of_a_run_that_nobody_leads) {
  Host host;
  const auto actions = host.look({});
  ASSERT_TRUE(find<ClaimTerm>(actions));
  EXPECT_EQ(find<ClaimTerm>(actions)->number, 1);
}

TEST(SuperviseAgent, claims_the_next_term_after_a_run_that_ended) {
  Host host;
  const Records over{.newest = {.number = 4}, .alive = "over"};
  EXPECT_TRUE(find<ConnectTo>(host.look(over))) << "the run may have ended just now";
  host.agent.disconnected(host.now);
  const auto actions = host.look(over);
  ASSERT_TRUE(find<ClaimTerm>(actions));
  EXPECT_EQ(find<ClaimTerm>(actions)->number, 5);
}

TEST(SuperviseAgent, ends_if_the_run_is_over_and_it_missed_the_message) {
  Host host;
  host.run();
  host.agent.message(Welcome{1}, host.now);
  host.agent.disconnected(host.now);
  const auto actions = host.look({.newest = {.number = 2}, .alive = "over", .exit_code = 75});
  EXPECT_TRUE(find<StopRanks>(actions));
  ASSERT_TRUE(find<EndAgent>(actions));
  EXPECT_EQ(find<EndAgent>(actions)->exit_code, 75);
}

TEST(SuperviseAgent, repeats_its_reports_until_a_leader_has_judged_them) {
  Host host;
  host.run();
  const Ended end{.attempt = 7, .ranks = {{.rank = 0}}, .all = true};
  EXPECT_TRUE(sent<Ended>(host.agent.ended(end, host.now)));
  const auto join_again = [&] {
    host.agent.disconnected(host.now);
    host.look({.newest = {.number = 2}, .alive = str("2 ", host.now.time_since_epoch().count())});
    return host.agent.connected(host.now);
  };
  for (int leader = 0; leader < 2; ++leader) {
    const auto actions = join_again();
    EXPECT_EQ(sent<Join>(actions)->running.attempt, 7);
    ASSERT_TRUE(sent<Ended>(actions));
    EXPECT_EQ(*sent<Ended>(actions), end);
  }
  host.agent.message(Welcome{2, 7}, host.now);
  const auto actions = join_again();
  EXPECT_EQ(sent<Join>(actions)->running.attempt, 0);
  EXPECT_FALSE(sent<Ended>(actions));
}

TEST(SuperviseAgent, claims_no_term_while_the_leader_changes_its_file) {
  Host host;
  for (int beat = 0; beat < 100; ++beat) {
    const auto actions = host.look({.newest = {.number = 1}, .alive = str("1 ", beat)});
    ASSERT_TRUE(find<ConnectTo>(actions)) << "look " << beat;
    host.agent.disconnected(host.now);  // it cannot be reached
  }
}

TEST(SuperviseAgent, claims_the_next_term_if_the_leader_is_neither_reached_nor_alive) {
  Host host;
  host.join();
  host.now += Milliseconds(10'000);
  EXPECT_TRUE(find<Disconnect>(host.agent.time(host.now))) << "the leader was silent";
  Milliseconds waited{0};
  for (;; waited += Milliseconds(300)) {
    ASSERT_LT(waited, Milliseconds(4'000));
    const auto actions = host.agent.looked({.newest = {.number = 1}, .alive = "1 9"}, host.now);
    if (find<ClaimTerm>(actions)) break;
    host.agent.disconnected(host.now);
    host.now += Milliseconds(300);
    host.agent.time(host.now);
  }
  EXPECT_GE(waited, AgentOptions().patience);
}

TEST(SuperviseAgent, claims_no_term_while_storage_does_not_answer) {
  Host host;
  for (int look = 0; look < 100; ++look)
    EXPECT_TRUE(host.look({.readable = false}).empty());
}

TEST(SuperviseAgent, keeps_its_ranks_when_the_leader_is_gone_and_tells_the_next_one) {
  Host host;
  host.run();
  EXPECT_FALSE(find<StopRanks>(host.agent.disconnected(host.now)));
  EXPECT_TRUE(
      host.agent.ended({.attempt = 7, .ranks = {{.rank = 0, .exit_code = 9}}}, host.now).empty());
  EXPECT_TRUE(find<ConnectTo>(host.look({.newest = {.number = 2}, .alive = "2 1"})));
  const auto actions = host.agent.connected(host.now);
  EXPECT_EQ(sent<Join>(actions)->running.attempt, 7);
  ASSERT_TRUE(sent<Ended>(actions));
  EXPECT_EQ(sent<Ended>(actions)->ranks.front().exit_code, 9);
}

TEST(SuperviseAgent, joins_with_the_ranks_that_an_earlier_agent_left) {
  const Deadline now = Deadline() + std::chrono::hours(1000);
  Agent agent({.join = {.id = "b", .host = "n1", .running = {.attempt = 7}}}, now);
  agent.time(now);
  agent.looked({.newest = {.number = 1}, .alive = "1 1"}, now);
  const auto actions = agent.connected(now);
  ASSERT_TRUE(sent<Join>(actions));
  EXPECT_EQ(sent<Join>(actions)->running.attempt, 7);
  EXPECT_TRUE(find<StopRanks>(agent.message(Stop{.attempt = 7}, now)));
}

TEST(SuperviseAgent, leaves_its_ranks_to_another_agent_of_the_host) {
  Host host;
  host.run();
  const auto actions = host.agent.message(Over{.exit_code = 75, .keeps_ranks = true}, host.now);
  EXPECT_FALSE(find<StopRanks>(actions));
  EXPECT_TRUE(find<EndAgent>(actions));
  EXPECT_TRUE(find<StopRanks>(host.agent.message(Over{.exit_code = 75}, host.now)));
}

TEST(SuperviseAgent, prepares_an_attempt_while_it_is_checked_as_a_spare) {
  Host host;
  host.join();
  EXPECT_TRUE(find<CheckHost>(host.agent.message(Prepare{.attempt = 0, .check = true}, host.now)));
  host.agent.message(Prepare{.attempt = 7}, host.now);
  EXPECT_TRUE(sent<Ready>(host.agent.checked({.attempt = 0, .fault = "slow"}, host.now)));
  EXPECT_TRUE(sent<Ready>(host.agent.checked({.attempt = 7}, host.now)));
}

TEST(SuperviseAgent, starts_ranks_only_if_it_was_prepared_for_them) {
  Host host;
  host.join();
  const Start start{.place = {.attempt = 7}};
  EXPECT_FALSE(find<StartRanks>(host.agent.message(start, host.now)));
  host.agent.message(Prepare{.attempt = 8}, host.now);
  EXPECT_FALSE(find<StartRanks>(host.agent.message(start, host.now)));
}

TEST(SuperviseAgent, answers_a_stop_of_an_attempt_that_does_not_run_here) {
  Host host;
  host.run();
  const auto actions = host.agent.message(Stop{.attempt = 6}, host.now);
  EXPECT_FALSE(find<StopRanks>(actions));
  EXPECT_TRUE(sent<Ended>(actions)->all);
  EXPECT_TRUE(find<StopRanks>(host.agent.message(Stop{.attempt = 7}, host.now)));
}

TEST(SuperviseAgent, stops_its_ranks_by_itself_if_no_leader_comes_back) {
  Host host;
  host.run();
  EXPECT_TRUE(sent<AskStop>(host.agent.stop({.why = "a signal"}, host.now)));
  host.agent.disconnected(host.now);
  host.now += Milliseconds(15'000);
  EXPECT_FALSE(find<StopRanks>(host.agent.time(host.now))) << "another leader may come";
  host.now += Milliseconds(6'000);
  EXPECT_TRUE(find<StopRanks>(host.agent.time(host.now)));
  EXPECT_FALSE(find<StopRanks>(host.agent.time(host.now)));
}

TEST(SuperviseAgent, stops_its_ranks_by_itself_if_it_is_asked_without_a_leader) {
  Host host;
  host.run();
  host.agent.disconnected(host.now);
  for (const bool leaves : {false, true}) {
    Host other = host;
    const AskStop ask{.why = "a signal", .leaves = leaves};
    EXPECT_TRUE(find<StopRanks>(other.agent.stop(ask, other.now))->save);
    const auto actions = other.agent.ended({.attempt = 7, .all = true}, other.now);
    ASSERT_TRUE(find<EndAgent>(actions));
    EXPECT_EQ(find<EndAgent>(actions)->exit_code, leaves ? 143 : 75);
  }
}

}  // namespace lockstep::testing::supervise_agent_test
