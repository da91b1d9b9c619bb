#include "dist/job/supervise/leader.h"

#include <csignal>
#include <gtest/gtest.h>
#include <set>

namespace lockstep::testing::leader_test {

using Phase = Leader::Phase;

// A leader and agents that answer as Agent does. Time passes only in run_for().
class Job {
 public:
  explicit Job(LeaderOptions options) : options_(std::move(options)) { lead(); }

  // Another leader, with the lines that those before recorded.
  void lead() {
    ++options_.term;
    leader.emplace(options_, now);
    take(leader->begin(records, 1000, now));
  }
  // An agent joins; ranks of this attempt run on its host, in the place of its last start.
  void join(const std::string& host, std::int64_t attempt = 0) {
    present.insert(host);
    auto place = started_as[host];
    place.attempt = attempt;
    take(leader->message(host, Join{.id = host, .host = host, .running = place}, now));
  }
  void run_for(Milliseconds time) {
    for (const auto end = now + time; now < end;) {
      now += Milliseconds(100);
      for (const auto& host : present)
        if (!silent.contains(host)) take(leader->message(host, AgentBeat(), now));
      take(leader->time(now));
    }
  }
  // The ranks of a host end.
  void end(const std::string& host, std::vector<RankEnd> ranks, bool all = true) {
    if (all) running.erase(host);
    take(leader->message(
        host, Ended{.attempt = leader->attempt().number, .ranks = std::move(ranks), .all = all},
        now));
  }
  void close(const std::string& host) {
    present.erase(host);
    take(leader->closed(host, now));
  }
  void take(const LeaderActions& actions) {
    for (const auto& action : actions) {
      if (const auto* to = std::get_if<SendTo>(&action)) {
        if (!silent.contains(to->agent) && present.contains(to->agent))
          receive(to->agent, to->message);
      } else if (std::holds_alternative<ReadProgress>(action)) {
        take(leader->progress(saved_step, last_step, end_code, now));
      } else if (const auto* bad = std::get_if<BadHost>(&action)) {
        bad_hosts.push_back(bad->host);
      } else if (const auto* drained = std::get_if<DrainAnswer>(&action)) {
        answer = *drained;
      } else if (const auto* over = std::get_if<RunOver>(&action)) {
        exit_code = over->exit_code;
        why = over->why;
      } else if (const auto* record = std::get_if<Record>(&action)) {
        records.push_back(record->line);
        records.back().set("time", 1000.0);
      }
    }
  }
  void receive(const std::string& host, const FromLeader& message) {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      checked += prepare->check ? 1 : 0;
      if (mute.contains(host)) return;
      take(leader->message(host,
                           Ready{.attempt = prepare->attempt,
                                 .fault = faulty.contains(host) ? "its disk is read-only" : "",
                                 .addresses = {host},
                                 .port = 1},
                           now));
    } else if (const auto* started_by = std::get_if<Start>(&message)) {
      start = *started_by;
      running[host] = start.place.attempt;
      started_as[host] = start.place;
      EXPECT_EQ(start.place.attempt, leader->attempt().number);
      EXPECT_EQ(start.place.hosts, static_cast<int>(places().size()));
      EXPECT_EQ(places().at(static_cast<std::size_t>(start.place.number)), host);
      ++starts;
    } else if (const auto* stop = std::get_if<Stop>(&message)) {
      if (stuck.contains(host)) return;
      const bool is_saved = stop->save && running.contains(host);
      running.erase(host);
      std::vector<RankEnd> ends;
      if (is_saved) ends.push_back({.rank = 0, .exit_code = 75});
      take(leader->message(host, Ended{.attempt = stop->attempt, .ranks = ends, .all = true}, now));
    } else if (const auto* over = std::get_if<Over>(&message)) {
      told[host] = over->exit_code;
    }
  }
  std::vector<std::string> places() const { return leader->attempt().places; }

  Deadline now = Deadline() + std::chrono::hours(1000);
  std::set<std::string> present, silent, faulty, mute, stuck;
  std::map<std::string, std::int64_t> running;
  std::map<std::string, HostPlace> started_as;
  std::map<std::string, int> told;
  std::vector<std::string> bad_hosts;
  std::int64_t saved_step = 10, last_step = 12;
  int starts = 0, checked = 0, end_code = -1;
  std::optional<int> exit_code;
  std::string why;
  std::vector<Json> records;
  Start start{};
  DrainAnswer answer{};
  std::optional<Leader> leader;

 private:
  LeaderOptions options_;
};

using Hosts = std::vector<std::string>;

RankEnd killed(int rank) {
  return {.rank = rank, .exit_code = 128 + SIGKILL};
}
RankEnd lost(int rank, const std::string& host) {
  return {.rank = rank, .exit_code = 75, .error = "stopped answering", .lost = {host}};
}

// Two hosts train, and n3 is a spare.
Job started() {
  Job job({.need = 2, .least = 2});
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(1'500));
  return job;
}

TEST(Leader, starts_the_ranks_when_enough_hosts_have_joined) {
  Job job({.need = 2, .least = 2});
  job.join("n2");
  job.run_for(Milliseconds(5'000));
  EXPECT_EQ(job.starts, 0);
  job.join("n1");
  job.run_for(Milliseconds(200));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
  EXPECT_EQ(job.checked, 2);
}

TEST(Leader, restarts_on_the_same_hosts_after_a_rank_was_killed) {
  auto job = started();
  job.end("n2", {killed(1)});
  EXPECT_EQ(job.leader->phase(), Phase::judge) << "the other ranks have two seconds to end";
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(200));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
  EXPECT_EQ(job.starts, 4);
}

TEST(Leader, kills_ranks_that_do_not_end_by_themselves) {
  auto job = started();
  job.end("n2", {killed(1)});
  job.run_for(Milliseconds(1'900));
  EXPECT_TRUE(job.running.contains("n1"));
  job.run_for(Milliseconds(300));
  EXPECT_EQ(job.starts, 4) << "n1 was killed, and both started again";
}

TEST(Leader, takes_a_spare_for_a_host_that_does_not_answer) {
  auto job = started();
  job.silent.insert("n2");
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.starts, 2) << "a silent agent ends no attempt";
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(200));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, continues_when_an_agent_dies_and_another_starts_on_its_host) {
  auto job = started();
  const auto attempt = job.running.at("n2");
  job.close("n2");
  job.run_for(Milliseconds(10'000));
  job.join("n2", attempt);
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.starts, 2);
  job.end("n2", {killed(1)});
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(500));
  EXPECT_EQ(job.starts, 4);
}

TEST(Leader, takes_over_what_runs_from_the_leader_before) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n2", attempt);
  job.join("n3");
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.leader->attempt().number, attempt);
  job.join("n1", attempt);
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.starts, 2);
  EXPECT_EQ(job.running.at("n1"), attempt);
}

TEST(Leader, keeps_the_newest_of_two_agents_of_a_host) {
  auto job = started();
  job.present.insert("another");
  job.take(job.leader->message("another", Join{.id = "another", .host = "n3"}, job.now));
  EXPECT_EQ(job.told.at("n3"), 75);
  EXPECT_FALSE(job.told.contains("another"));
}

TEST(Leader, lets_ranks_save_if_it_is_asked_to_stop_before_it_has_adopted_them) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n1", attempt);
  job.join("n2", attempt);
  job.take(job.leader->message("n2", AskStop{"SIGTERM"}, job.now));
  EXPECT_TRUE(job.told.empty()) << "the ranks would be killed";
  job.run_for(Milliseconds(1'500));
  EXPECT_TRUE(job.running.empty());
  EXPECT_EQ(job.exit_code, 75);
}

TEST(Leader, does_not_adopt_again_what_it_has_judged) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n1", attempt);
  job.run_for(Milliseconds(1'500));
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.leader->phase(), Phase::gather);
  job.join("n2", attempt);
  EXPECT_FALSE(job.running.contains("n2")) << "it must not run beside the next attempt";
  EXPECT_EQ(job.leader->phase(), Phase::gather);
}

TEST(Leader, excludes_no_host_if_none_answers) {
  Job job({.need = 2, .least = 2});
  job.mute = {"n1", "n2"};
  for (const char* host : {"n1", "n2"})
    job.join(host);
  job.run_for(Milliseconds(35'000));
  EXPECT_TRUE(job.bad_hosts.empty());
  job.mute.clear();
  job.run_for(Milliseconds(35'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
}

TEST(Leader, stops_ranks_of_an_older_attempt) {
  auto job = started();
  job.join("n3", 1);
  EXPECT_FALSE(job.running.contains("n3"));
  EXPECT_EQ(job.leader->phase(), Phase::run);
}

TEST(Leader, excludes_a_host_that_fails_its_check) {
  Job job({.need = 2, .least = 2});
  job.faulty.insert("n1");
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(2'000));
  EXPECT_EQ(job.places(), (Hosts{"n3", "n2"}));
  EXPECT_EQ(job.bad_hosts, Hosts{"n1"});
}

TEST(Leader, excludes_a_host_that_does_not_answer_its_check) {
  Job job({.need = 2, .least = 2});
  job.mute.insert("n1");
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(35'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.bad_hosts, Hosts{"n1"});
}

TEST(Leader, excludes_a_host_whose_ranks_cannot_be_killed) {
  auto job = started();
  job.stuck.insert("n2");
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(8'000));
  EXPECT_EQ(job.bad_hosts, Hosts{"n2"});
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, remembers_hosts_that_an_earlier_leader_excluded) {
  Job job({.need = 2, .least = 2});
  const auto event = [](const char* what, const char* host) {
    return Json(Json::Object{{"time", 990.0}, {"term", 1}, {"event", what}, {"host", host}});
  };
  job.records = {Json(Json::Object{{"event", "of another version"}}), event("joined", "n2"),
                 event("excluded", "n1")};
  job.lead();
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.places(), (Hosts{"n2", "n3"}));
}

TEST(Leader, continues_to_count_the_restarts_of_an_earlier_leader) {
  auto job = started();
  const RankEnd broken{.rank = 0, .exit_code = 75, .error = "connections broke"};
  for (int restart = 0; restart < PolicyOptions().fruitless; ++restart) {
    job.lead();
    job.join("n1", job.running.at("n1"));
    job.join("n2", job.running.at("n2"));
    job.run_for(Milliseconds(1'500));
    ASSERT_EQ(job.leader->phase(), Phase::run) << restart;
    job.end("n1", {broken});
    job.run_for(Milliseconds(303'000));
  }
  job.end("n1", {broken});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.exit_code, 1) << "five starts saved nothing";
}

TEST(Leader, judges_by_reports_that_the_leader_before_did_not_act_on) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n1", attempt);
  job.take(job.leader->message("n1", Ended{.attempt = attempt, .ranks = {{.rank = 0}}, .all = true},
                               job.now));
  job.join("n2", attempt);
  job.take(job.leader->message("n2", Ended{.attempt = attempt, .ranks = {{.rank = 1}}, .all = true},
                               job.now));
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.exit_code, 0) << "the run was complete";
}

TEST(Leader, does_not_judge_an_attempt_again_that_the_leader_before_judged) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.end("n1", {killed(0)});
  job.silent = {"n1", "n2"};  // the next start does not reach them
  job.run_for(Milliseconds(3'000));
  job.silent.clear();
  job.lead();
  job.join("n1", attempt);
  job.join("n2", attempt);
  job.run_for(Milliseconds(1'500));
  EXPECT_FALSE(job.running.contains("n1") && job.running.at("n1") == attempt);
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.leader->phase(), Phase::run);
}

TEST(Leader, kills_ranks_that_do_not_end_after_the_others) {
  for (const bool root_ends : {true, false}) {
    auto job = started();
    job.end(root_ends ? "n1" : "n2", {{.rank = root_ends ? 0 : 1}});
    job.run_for(Milliseconds(590'000));
    EXPECT_FALSE(job.exit_code) << "the others may take so long";
    job.run_for(Milliseconds(20'000));
    if (root_ends) {
      EXPECT_EQ(job.exit_code, 0) << "rank 0 ended the run";
    } else {
      EXPECT_EQ(job.starts, 4);
    }
  }
}

TEST(Leader, does_not_end_a_run_while_the_host_of_rank_0_is_silent) {
  auto job = started();
  job.silent.insert("n1");
  job.end("n2", {{.rank = 1}});
  job.run_for(Milliseconds(25'000));
  EXPECT_EQ(job.leader->phase(), Phase::run) << "rank 0 may save";
  job.silent.clear();
  job.run_for(Milliseconds(1'000));
  job.end("n1", {{.rank = 0}});
  EXPECT_EQ(job.exit_code, 0);
}

TEST(Leader, continues_a_drain_that_an_earlier_leader_began) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.stuck = {"n1", "n2"};  // they have not saved yet
  job.take(job.leader->drain("n2", "", job.now));
  job.stuck.clear();
  job.lead();
  job.join("n1", attempt);
  job.join("n2", attempt);
  job.join("n3");
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.exit_code, std::nullopt);
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, restarts_after_a_drain_whose_leader_died) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.mute = {"n1", "n3"};  // the next attempt does not start
  job.take(job.leader->drain("n2", "", job.now));
  job.run_for(Milliseconds(1'000));
  job.mute.clear();
  job.lead();
  for (const char* host : {"n1", "n2"}) {
    job.join(host, attempt);
    job.take(job.leader->message(
        host, Ended{.attempt = attempt, .ranks = {{.rank = 0, .exit_code = 75}}, .all = true},
        job.now));
  }
  job.join("n3");
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.exit_code, std::nullopt) << "the ranks saved and stopped for the drain";
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, forgets_what_another_job_recorded) {
  auto job = started();
  job.take(job.leader->drain("n3", "", job.now));
  for (auto& line : job.records)
    if (line.find("job") != nullptr) line.set("job", "another");
  job.lead();
  for (const char* host : {"n1", "n3"})
    job.join(host);
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, reads_the_exit_code_of_ranks_that_no_agent_watched) {
  for (const int code : {0, 75, 130}) {
    auto job = started();
    job.end_code = code;
    const auto unwatched = [](int rank) {
      return RankEnd{.rank = rank, .exit_code = 75, .unwatched = true, .error = "not watched"};
    };
    job.end("n2", {unwatched(1)});
    job.run_for(Milliseconds(1'500));
    job.end("n1", {unwatched(0)});
    job.run_for(Milliseconds(8'000));
    EXPECT_EQ(job.exit_code, code == 75 ? std::nullopt : std::optional(code));
    EXPECT_TRUE(job.bad_hosts.empty());
  }
}

TEST(Leader, restarts_at_once_after_a_loss_that_only_unwatched_ranks_noticed) {
  auto job = started();
  job.silent.insert("n2");
  job.run_for(Milliseconds(5'000));
  job.end("n1", {{.rank = 0, .exit_code = 75, .unwatched = true, .error = "not watched"}});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, blames_no_host_that_has_not_joined_yet_after_a_loss_of_all_power) {
  Job job({.need = 2, .least = 2});
  for (int outage = 0; outage < 3; ++outage) {
    job.join("n1");
    job.run_for(Milliseconds(3'000));
    job.join("n2");
    job.run_for(Milliseconds(10'000));
    ASSERT_EQ(job.leader->phase(), Phase::run);
    job.present.clear();
    job.running.clear();
    ++job.saved_step;
    job.lead();
  }
  EXPECT_TRUE(job.bad_hosts.empty());
}

TEST(Leader, gives_ranks_time_to_notice_a_host_that_booted_while_nobody_led) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n1", attempt);
  job.join("n2");
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.running.at("n1"), attempt);
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.starts, 4);
  for (const auto& line : job.records)
    if (text_at(line, "event") == "judged") {
      EXPECT_TRUE(line.at("hosts").as_array().empty()) << line.dump();
    }
}

TEST(Leader, ends_a_complete_run_when_an_agent_that_was_killed_joins_again) {
  auto job = started();
  job.end("n1", {{.rank = 0}});
  job.run_for(Milliseconds(2'000));
  job.close("n2");
  job.join("n2");  // its ranks ended while it was away
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.exit_code, 0);
}

TEST(Leader, ignores_lines_of_a_deposed_leader) {
  for (const int term : {0, 9}) {
    auto job = started();
    job.records.push_back(Json::Object{
        {"time", 1000.0}, {"term", term}, {"event", "drained"}, {"host", "n1"}, {"why", ""}});
    job.lead();
    for (const char* host : {"n1", "n2", "n3"})
      job.join(host);
    job.run_for(Milliseconds(8'000));
    EXPECT_EQ(job.places()[0], term == 0 ? "n1" : "n3");
  }
}

RankEnd crashed(int rank, std::int64_t noted = 0) {
  return {.rank = rank,
          .exit_code = 128 + SIGSEGV,
          .step = noted,
          .samples = noted > 0 ? "samples 96 to 99" : ""};
}

TEST(Leader, moves_the_ranks_of_a_host_that_fails_again_at_the_same_step) {
  for (const bool has_spare : {true, false}) {
    auto job = started();
    if (!has_spare) job.close("n3");
    for (int failure = 0; failure < 2; ++failure) {
      EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
      EXPECT_EQ(job.start.noted_step, failure == 0 ? 0 : 13) << "step 12 is the last one";
      job.end("n2", {crashed(1, job.start.noted_step)});
      job.end("n1", {lost(0, "n2")});
      job.run_for(Milliseconds(12'000));
    }
    EXPECT_EQ(job.places(), has_spare ? (Hosts{"n1", "n3"}) : (Hosts{"n2", "n1"}));
    const auto attempt = job.leader->attempt();  // a new leader knows the places before
    job.lead();
    for (const auto& host : attempt.places)
      job.join(host, attempt.number);
    job.run_for(Milliseconds(1'500));
    EXPECT_TRUE(job.bad_hosts.empty());
    if (!has_spare) {  // the error follows the host
      job.end("n2", {crashed(0, 13)});
      job.end("n1", {lost(1, "n2")});
      job.run_for(Milliseconds(3'000));
      EXPECT_EQ(job.bad_hosts, Hosts{"n2"});
      continue;
    }
    job.end("n3", {crashed(1, 13)});  // it follows the data
    job.end("n1", {lost(0, "n3")});
    job.run_for(Milliseconds(3'000));
    EXPECT_EQ(job.exit_code, 1);
    EXPECT_NE(job.why.find("samples 96 to 99"), std::string::npos) << job.why;
    EXPECT_NE(job.why.find("--skip-steps 13..13"), std::string::npos) << job.why;
  }
}

TEST(Leader, blames_no_host_for_an_error_of_all) {
  auto job = started();
  job.close("n3");
  const auto failed = [](int rank) {
    return RankEnd{.rank = rank, .exit_code = 1, .error = "the loss is not finite", .step = 13};
  };
  for (int start = 0; start < 2; ++start) {
    job.end("n1", {failed(0)});
    job.end("n2", {failed(1)});
    job.run_for(Milliseconds(20'000));
  }
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_TRUE(job.bad_hosts.empty());
}

TEST(Leader, leaves_out_the_data_of_a_step_if_it_may) {
  Job job({.need = 2, .least = 2, .policy = {.skips = true}});
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(1'500));
  for (const char* host : {"n2", "n1"}) {
    EXPECT_EQ(job.start.skip_step, 0);
    job.end(host, {crashed(host == job.places()[0] ? 0 : 1, job.start.noted_step)});
    job.run_for(Milliseconds(20'000));
  }
  EXPECT_EQ(job.start.skip_step, 13);
  job.saved_step = 12;
  job.end("n2", {killed(1)});
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.start.skip_step, 13) << "no checkpoint has the change";
  job.saved_step = 14;
  job.end("n1", {killed(0)});
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.start.skip_step, 0);
}

TEST(Leader, readmits_an_excluded_host_rather_than_stop) {
  Job job({.need = 2, .least = 2});
  job.faulty.insert("n1");
  for (const char* host : {"n1", "n2"})
    job.join(host);
  job.run_for(Milliseconds(1'200));
  EXPECT_EQ(job.bad_hosts, Hosts{"n1"});
  job.run_for(Milliseconds(4'000));
  EXPECT_EQ(job.bad_hosts, Hosts{"n1"}) << "it is tried again after five seconds";
  job.faulty.clear();
  job.run_for(Milliseconds(2'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
}

TEST(Leader, ends_the_run_if_too_few_hosts_join) {
  Job job({.need = 2, .least = 2, .gather = Milliseconds(30'000)});
  job.join("n1");
  job.run_for(Milliseconds(35'000));
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_EQ(job.told.at("n1"), 75);
}

TEST(Leader, waits_less_for_hosts_after_a_failure) {
  for (const bool takes_over : {false, true}) {
    Job job({.need = 2,
             .least = 2,
             .takes_over = takes_over,
             .is_same_start = takes_over,
             .rejoin = Milliseconds(5'000)});
    job.join("n1");
    job.run_for(Milliseconds(8'000));
    EXPECT_EQ(job.exit_code.has_value(), takes_over);
  }
  Job job({.need = 2, .least = 2, .rejoin = Milliseconds(5'000)});
  job.join("n1");
  job.join("n2");
  job.run_for(Milliseconds(1'500));
  job.silent.insert("n2");
  job.run_for(Milliseconds(4'000));
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(7'000));
  EXPECT_EQ(job.exit_code, 75);
}

TEST(Leader, starts_with_fewer_hosts_if_that_is_allowed) {
  Job job({.need = 2, .least = 1, .gather = Milliseconds(30'000)});
  job.join("n1");
  job.run_for(Milliseconds(25'000));
  EXPECT_EQ(job.starts, 0);
  job.run_for(Milliseconds(10'000));
  EXPECT_EQ(job.places(), Hosts{"n1"});
}

TEST(Leader, ends_the_run_when_it_is_complete) {
  auto job = started();
  job.end("n1", {{.rank = 0}});
  EXPECT_EQ(job.exit_code, std::nullopt);
  job.end("n2", {{.rank = 1}});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.told.at("n3"), 0);
}

TEST(Leader, saves_and_ends_when_it_is_asked) {
  auto job = started();
  job.take(job.leader->message("n2", AskStop{"SIGTERM"}, job.now));
  job.run_for(Milliseconds(500));
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_TRUE(job.running.empty());
}

TEST(Leader, continues_without_a_host_that_shuts_down) {
  auto job = started();
  job.take(job.leader->message("n2", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  EXPECT_EQ(job.told.at("n2"), 143);
  EXPECT_FALSE(job.told.contains("n1"));
  job.close("n2");
  job.join("n2");  // after it has booted, it is a spare
  job.run_for(Milliseconds(1'000));
  job.take(job.leader->drain("n3", "", job.now));
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
}

TEST(Leader, ends_a_run_that_is_complete_while_a_host_leaves) {
  for (const int code : {0, 130}) {
    auto job = started();
    job.stuck = {"n1", "n2"};  // they save
    job.take(job.leader->message("n2", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
    job.stuck.clear();
    job.end("n2", {{.rank = 1, .exit_code = code}});
    job.end("n1", {{.rank = 0, .exit_code = code}});
    job.run_for(Milliseconds(3'000));
    EXPECT_EQ(job.exit_code, code);
  }
}

TEST(Leader, prefers_a_spare_to_a_host_that_left_and_joined_again) {
  auto job = started();
  job.stuck = {"n1"};  // rank 0 saves
  job.take(job.leader->message("n2", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  EXPECT_EQ(job.told.at("n2"), 143);
  job.close("n2");
  job.join("n2");
  job.run_for(Milliseconds(500));
  job.end("n1", {{.rank = 0, .exit_code = 75}});
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
}

TEST(Leader, counts_no_host_that_is_lost_for_long_as_one_that_stays) {
  auto job = started();
  job.close("n3");
  job.join("n4");
  job.close("n4");
  job.run_for(Milliseconds(400'000));
  for (const char* host : {"n1", "n2"})
    job.take(job.leader->message(host, AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  job.run_for(Milliseconds(500));
  EXPECT_EQ(job.exit_code, 75);
}

TEST(Leader, keeps_the_code_of_a_request_to_stop_that_comes_during_a_drain) {
  auto job = started();
  job.stuck = {"n1", "n2"};
  job.take(job.leader->drain("n2", "", job.now));
  job.end("n2", {{.rank = 1, .exit_code = 75}});
  job.take(job.leader->stop("a user", job.now, 130));
  job.end("n1", {{.rank = 0, .exit_code = 75}});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.exit_code, 130);
}

TEST(Leader, remembers_a_request_of_a_user_to_stop) {
  for (const int code : {75, 130}) {
    auto job = started();
    const auto attempt = job.leader->attempt().number;
    job.stuck = {"n1", "n2"};
    job.take(job.leader->stop("a request", job.now, code));
    job.stuck.clear();
    job.lead();
    job.join("n1", attempt);
    job.join("n2", attempt);
    job.run_for(Milliseconds(3'000));
    EXPECT_EQ(job.exit_code, code == 130 ? std::optional(130) : std::nullopt)
        << "agents repeat their own requests";
  }
  auto job = started();
  for (const char* host : {"n1", "n2", "n3"})
    job.close(host);
  job.take(job.leader->stop("a request", job.now, 130));
  for (auto& line : job.records)
    line.set("time", 1.0);
  job.lead();
  EXPECT_EQ(job.exit_code, std::nullopt);
  for (const char* host : {"n1", "n2"})
    job.join(host);
  job.run_for(Milliseconds(40'000));
  EXPECT_EQ(job.exit_code, std::nullopt) << "an old request was of an earlier start";
}

TEST(Leader, lets_a_user_stop_a_run_that_already_stops) {
  auto job = started();
  job.stuck = {"n1", "n2"};
  job.take(job.leader->stop("the time limit", job.now));
  job.take(job.leader->stop("a user", job.now, 130));
  job.end("n2", {{.rank = 1, .exit_code = 75}});
  job.end("n1", {{.rank = 0, .exit_code = 75}});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.exit_code, 130);
}

TEST(Leader, lets_a_spare_leave) {
  auto job = started();
  job.take(job.leader->message("n3", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  EXPECT_EQ(job.told.at("n3"), 143);
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.starts, 2);
  EXPECT_EQ(job.exit_code, std::nullopt);
}

TEST(Leader, ends_the_run_if_too_few_hosts_stay) {
  auto job = started();
  for (const char* host : {"n3", "n1", "n2"})
    job.take(job.leader->message(host, AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  job.run_for(Milliseconds(500));
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_TRUE(job.running.empty());
}

TEST(Leader, starts_no_ranks_on_a_host_that_shuts_down_meanwhile) {
  Job job({.need = 2, .least = 2});
  job.mute = {"n1"};  // its check takes a while
  for (const char* host : {"n1", "n2", "n3"})
    job.join(host);
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.leader->phase(), Phase::prepare);
  job.take(job.leader->message("n2", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  job.mute.clear();
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  EXPECT_EQ(job.starts, 2);
}

TEST(Leader, lets_a_host_leave_that_asks_while_a_leader_adopts) {
  auto job = started();
  const auto attempt = job.leader->attempt().number;
  job.lead();
  job.join("n1", attempt);
  job.join("n2", attempt);
  job.join("n3");
  job.take(job.leader->message("n2", AskStop{.why = "SIGTERM", .leaves = true}, job.now));
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  EXPECT_EQ(job.told.at("n2"), 143);
}

TEST(Leader, ends_a_run_that_waits_with_the_code_of_the_request) {
  auto job = started();
  job.mute = {"n1", "n2", "n3"};
  job.end("n2", {killed(1)});
  job.run_for(Milliseconds(3'000));
  ASSERT_EQ(job.leader->phase(), Phase::prepare);
  job.take(job.leader->stop("a user", job.now, 130));
  EXPECT_EQ(job.exit_code, 130);
}

TEST(Leader, restarts_without_a_drained_host) {
  auto job = started();
  job.take(job.leader->drain("n2", "a fan is loud", job.now));
  EXPECT_TRUE(job.answer.is_done) << job.answer.text;
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  job.run_for(std::chrono::hours(2));
  job.lead();
  job.join("n1", job.running.at("n1"));
  job.join("n3", job.running.at("n3"));
  job.join("n2");
  job.run_for(Milliseconds(1'500));
  job.end("n3", {killed(1)});
  job.close("n3");
  job.run_for(Milliseconds(290'000));
  EXPECT_EQ(job.leader->phase(), Phase::gather) << "it is not used until the run ends";
  EXPECT_EQ(job.exit_code, std::nullopt);
}

TEST(Leader, replaces_the_host_of_a_straggler_if_a_spare_is_ready) {
  auto job = started();
  job.run_for(Milliseconds(500));  // the spare is checked
  job.take(job.leader->message("n1", Slow{{"n2"}}, job.now));
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  EXPECT_EQ(job.bad_hosts, Hosts{"n2"});
  job.take(job.leader->message("n1", Slow{{"n3"}}, job.now));
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.starts, 4) << "there is no other spare";
}

TEST(Leader, refuses_to_drain_a_host_that_it_needs_or_does_not_know) {
  auto job = started();
  job.take(job.leader->drain("n9", "", job.now));
  EXPECT_FALSE(job.answer.is_done);
  job.close("n3");
  job.take(job.leader->drain("n2", "", job.now));
  EXPECT_FALSE(job.answer.is_done);
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n2"}));
  EXPECT_EQ(job.starts, 2);
}

TEST(Leader, refuses_agents_of_another_job_or_with_other_slots) {
  Job job({.job = "7", .need = 1, .least = 1});
  job.present.insert("n1");
  job.take(job.leader->message("n1", Join{.id = "n1", .host = "n1", .job = "8"}, job.now));
  EXPECT_EQ(job.told.at("n1"), 75);
  job.take(
      job.leader->message("n1", Join{.id = "n1", .host = "n1", .job = "7", .slots = 2}, job.now));
  EXPECT_EQ(job.told.at("n1"), 78);
}

TEST(Leader, counts_no_stop_of_its_own_process_as_silence) {
  Job job = started();
  job.now += Milliseconds(40'000);
  for (const auto* host : {"n1", "n2", "n3"})
    job.close(host);
  job.run_for(Milliseconds(1'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
}

TEST(Leader, adopts_ranks_whose_agents_join_late) {
  auto job = started();
  const auto running = job.leader->attempt();
  job.present.clear();
  job.lead();
  job.run_for(Milliseconds(5'000));
  job.join("n1", running.number);
  job.join("n2", running.number);
  job.run_for(Milliseconds(5'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  EXPECT_EQ(job.leader->attempt(), running);
  EXPECT_EQ(job.starts, 2);
}

TEST(Leader, adopts_ranks_whose_start_the_leader_before_did_not_record) {
  auto job = started();
  const auto before = job.records;
  job.end("n2", {killed(1)});
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(200));
  const auto running = job.leader->attempt();
  ASSERT_EQ(job.starts, 4);
  job.records = before;  // storage of the leader's host did not answer
  job.lead();
  job.join("n2", running.number);
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.leader->attempt().places, (Hosts{"", "n2"}));
  job.join("n1", running.number);
  EXPECT_EQ(job.leader->attempt(), running);
  job.run_for(Milliseconds(2'000));
  EXPECT_EQ(job.starts, 4);
  job.end("n1", {killed(0)});
  job.end("n2", {lost(1, "n1")});
  job.run_for(Milliseconds(200));
  EXPECT_EQ(job.starts, 6);
}

TEST(Leader, adopts_ranks_of_another_job) {
  auto job = started();
  const auto running = job.leader->attempt();
  for (auto& line : job.records)
    if (line.find("job") != nullptr) line.set("job", "another");
  job.lead();
  job.join("n1", running.number);  // n2 joins later, but the records name it
  job.run_for(Milliseconds(1'500));
  EXPECT_EQ(job.leader->attempt(), running);
  EXPECT_EQ(job.starts, 2);
}

TEST(Leader, restarts_on_spares_if_hosts_are_not_known) {
  auto job = started();
  const auto running = job.leader->attempt().number;
  job.records.clear();
  job.lead();
  job.join("n1", running);
  job.join("n3");
  job.run_for(Milliseconds(1'500));
  job.end("n1", {lost(0, "n2")});
  job.run_for(Milliseconds(3'000));
  EXPECT_EQ(job.places(), (Hosts{"n1", "n3"}));
  EXPECT_TRUE(job.bad_hosts.empty());
}

TEST(Leader, restarts_no_ranks_while_their_progress_cannot_be_read) {
  Job job = started();
  job.saved_step = job.last_step = kUnknown;
  for (const auto* host : {"n1", "n2", "n3"})
    job.close(host);
  job.run_for(Milliseconds(120'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  job.saved_step = 10;
  job.last_step = 500;  // they train
  job.run_for(Milliseconds(20'000));
  EXPECT_EQ(job.leader->phase(), Phase::run);
  job.run_for(Milliseconds(60'000));
  EXPECT_NE(job.leader->phase(), Phase::run);
}

TEST(Leader, restarts_ranks_without_agents_only_if_they_make_no_progress) {
  auto job = started();
  job.close("n1");
  job.close("n2");
  job.join("n4");
  for (int second = 0; second < 120; ++second) {
    ++job.last_step;
    job.run_for(Milliseconds(1'000));
  }
  EXPECT_EQ(job.starts, 2);
  job.run_for(Milliseconds(60'000));
  EXPECT_EQ(job.starts, 4);
  EXPECT_EQ(job.places(), (Hosts{"n3", "n4"}));
}

}  // namespace lockstep::testing::leader_test
