#include "dist/job/supervise/messages.h"

#include <gtest/gtest.h>

namespace lockstep::testing::supervise_messages_test {

TEST(SuperviseMessages, arrive_as_they_were_sent) {
  const RankEnd end{.rank = 3,
                    .exit_code = 137,
                    .unwatched = true,
                    .out_of_memory = true,
                    .error = "line \"1\"\nline 2",
                    .lost = {"n1"},
                    .faulty = {"n2", "n3"},
                    .step = 12,
                    .samples = "samples 4 to 7",
                    .is_verdict = true,
                    .is_common = true};
  const HostPlace place{.attempt = 1'048'577, .number = 1, .hosts = 2};
  const std::vector<FromAgent> from_agent{
      Join{.id = "a", .host = "n1", .job = "j", .slots = 8, .running = place},
      AgentBeat(),
      Ready{.attempt = 7, .fault = "no", .addresses = {"10.0.0.1", "fe80::1"}, .port = 4711},
      Ended{.attempt = 7, .ranks = {end, {}}, .xids = {79}, .all = true},
      AskStop{.why = "SIGTERM", .leaves = true},
      Slow{{"n1", "n2"}}};
  for (const auto& message : from_agent)
    EXPECT_EQ(decode_from_agent(encode(message)), message) << encode(message);
  const std::vector<FromLeader> from_leader{
      Welcome{3, 2}, Prepare{.attempt = 7, .check = true, .leads = true},
      Start{.place = place,
            .takes_over = true,
            .addresses = {"10.0.0.1"},
            .port = 4711,
            .restart = {.judge = 0.5, .prepare = 1.25},
            .noted_step = 12,
            .skip_step = 13},
      Stop{.attempt = 7, .save = true}, Over{.exit_code = 75, .why = "asked", .keeps_ranks = true}};
  for (const auto& message : from_leader)
    EXPECT_EQ(decode_from_leader(encode(message)), message) << encode(message);
}

TEST(SuperviseMessages, that_are_wrong_are_errors) {
  for (
      const char* text :
      {"", "{}", "[]", R"({"kind":"other"})", R"({"kind":"stop"})",
       R"({"kind":"stop","attempt":-1,"save":true})",
       R"({"kind":"ready","attempt":1,"fault":"","addresses":[],"port":65536})",
       R"({"kind":"start","place":{"attempt":1,"number":1,"hosts":1},"takes_over":false,"addresses":[],)"
       R"("port":1,"restart":{"judge":0,"prepare":0},"noted_step":0,"skip_step":0})"}) {
    EXPECT_THROW(decode_from_agent(text), DataError) << text;
    EXPECT_THROW(decode_from_leader(text), DataError) << text;
  }
}

TEST(SuperviseMessages, keep_the_record_of_a_term) {
  const Term term{
      .number = 12, .id = "x", .job = "7.0", .host = "n1", .addresses = {"10.0.0.1"}, .port = 4711};
  const auto read = Term::parse(term.dump(), "a file");
  EXPECT_EQ(read.number, 12);
  EXPECT_EQ(read.host, "n1");
  EXPECT_EQ(read.job, "7.0");
  EXPECT_EQ(read.addresses, term.addresses);
  EXPECT_EQ(read.port, 4711);
}

}  // namespace lockstep::testing::supervise_messages_test
