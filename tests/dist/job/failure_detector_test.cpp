#include "dist/job/failure_detector.h"

#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::watch_test {

using std::chrono::seconds;

// Eight ranks, two per host, that beat every second, except those that a test omits.
struct Ward {
  Ward() {
    for (int rank = 0; rank < kRanks; ++rank) {
      detector.introduce(rank, {str("n", rank / 2), 100 + rank});
      detector.joined(rank, now);
    }
  }
  void beats(const Beat& beat, const std::vector<int>& silent = {}) {
    for (int rank = 0; rank < kRanks; ++rank)
      if (std::find(silent.begin(), silent.end(), rank) == silent.end())
        detector.beat(rank, beat, now);
  }
  std::string verdict() const { return detector.verdict(now).value_or(Verdict{}).text; }
  std::vector<int> lost() const { return detector.verdict(now).value_or(Verdict{}).lost; }
  // The verdict is the message `name`, which holds `pins`.
  void expect_verdict(const std::string& name, std::initializer_list<std::string> pins) const {
    const auto text = verdict();
    for (const auto& pin : pins)
      expect_contains(text, pin);
    expect_wording("dist/failure_detector", name, text);
  }

  static constexpr int kRanks = 8;
  Deadline now = Deadline() + seconds(1000);
  FailureDetector detector{kRanks, Timing{}};
};

Beat at(std::uint64_t collectives, bool inside, Milliseconds still = {},
        std::string_view unit = "layer 7") {
  Beat beat;
  beat.activity.step = 120;
  beat.activity.collectives = collectives;
  beat.activity.inside = inside;
  beat.activity.collective = Activity::name("all_gather");
  beat.activity.unit = Activity::name(unit);
  beat.still = still;
  beat.watched = true;
  return beat;
}

TEST(FailureDetector, gives_no_verdict_on_ranks_that_beat) {
  Ward ward;
  for (int second = 0; second < 200; ++second) {
    EXPECT_EQ(ward.verdict(), "");
    ward.now += seconds(1);
    ward.beats(at(4711, true, seconds(49)));
  }
}

TEST(FailureDetector, names_silent_and_waiting_ranks) {
  Ward ward;
  ward.beats(at(4711, true));
  ward.detector.beat(5, at(4710, false, {}, "layer 6"), ward.now);
  const auto last = ward.now;
  while (ward.now - last < Milliseconds(5000)) {
    ward.now += seconds(1);
    ward.beats(at(4711, true), {5});
    EXPECT_EQ(ward.verdict(), "") << "after " << (ward.now - last).count();
  }
  ward.now += Milliseconds(200);
  ward.expect_verdict("one is silent", {"rank 5 (host n2, pid 105)", "5.2 s", "step 120",
                                        "all_gather 4711", "layer 7", "ranks 0-4, 6, 7"});
}

TEST(FailureDetector, names_all_ranks_of_a_host_that_is_gone) {
  Ward ward;
  ward.beats(at(9, true));
  ward.now += Milliseconds(600);
  ward.detector.beat(7, at(9, true), ward.now);
  for (int second = 0; second < 5; ++second) {
    ward.now += seconds(1);
    ward.beats(at(9, true), {6, 7});
  }
  ward.expect_verdict("two are silent",
                      {"rank 6 (host n3, pid 106)", "5.6 s", "rank 7 (host n3, pid 107)", "5 s"});
}

TEST(FailureDetector, stays_short_when_very_many_are_gone) {
  constexpr int kMany = 1000;
  FailureDetector detector(kMany, Timing{});
  for (int rank = 0; rank < kMany; ++rank) {
    detector.introduce(rank, {"n", 1});
    detector.joined(rank, Deadline());
  }
  const auto verdict = detector.verdict(Deadline() + seconds(6)).value_or(Verdict{});
  const auto& text = verdict.text;
  EXPECT_EQ(verdict.lost.size(), 1000u);
  EXPECT_LT(text.size(), 1000u);
  expect_contains(text, "992");
  expect_wording("dist/failure_detector", "very many are silent", text);
}

TEST(FailureDetector, names_a_rank_that_closed_its_connection_at_once) {
  Ward ward;
  ward.beats(at(3, false));
  ward.detector.closed(2);
  ward.expect_verdict("one died",
                      {"rank 2 (host n1, pid 102)", "step 120", "all_gather 3", "layer 7"});
  EXPECT_EQ(ward.lost(), std::vector<int>{2});
}

TEST(FailureDetector, accepts_a_goodbye) {
  Ward ward;
  ward.detector.left(2);
  ward.detector.closed(2);
  for (int second = 0; second < 20; ++second) {
    ward.now += seconds(1);
    ward.beats(at(3, false), {2});
  }
  EXPECT_EQ(ward.verdict(), "");
}

TEST(FailureDetector, has_the_message_of_a_failed_rank_and_the_silent_ranks) {
  Ward ward;
  ward.beats(at(3, true));
  ward.now += Milliseconds(2500);
  ward.beats(at(3, true), {6});
  ward.detector.failed(1, "no bytes are left", 65);
  ward.expect_verdict("one failed", {"rank 1 (host n0, pid 101)", "no bytes are left",
                                     "rank 6 (host n3, pid 106)", "2.5 s", "all_gather 3"});
  EXPECT_EQ(ward.lost(), std::vector<int>{6}) << "rank 1 sent its error, and is not lost";
}

TEST(FailureDetector, names_the_ranks_with_the_fewest_collectives_in_a_stall) {
  Ward ward;
  ward.beats(at(4711, true, seconds(50)));
  ward.detector.beat(3, at(4709, false, seconds(51), "layer 5"), ward.now);
  ward.detector.beat(4, at(4710, true, seconds(51), "layer 6"),
                     ward.now);  // waits for 3, like the others
  ward.expect_verdict("a stall", {"rank 3 (host n1, pid 103)", "51 s", "step 120",
                                  "all_gather 4710", "layer 6", "ranks 0-2, 4-7"});
  EXPECT_EQ(ward.lost(), std::vector<int>{3});
}

TEST(FailureDetector, does_not_abort_a_slow_rank) {
  Ward ward;
  ward.beats(at(4711, true, seconds(500)));
  ward.detector.beat(3, at(4710, false, seconds(1)), ward.now);
  EXPECT_EQ(ward.verdict(), "");
}

TEST(FailureDetector, names_no_rank_if_all_stall_at_one_place) {
  Ward ward;
  ward.beats(at(4711, true, seconds(60)));
  ward.expect_verdict("a stall of all", {"60 s", "step 120", "all_gather 4711", "layer 7"});
  EXPECT_TRUE(ward.lost().empty());
}

// For example, when some ranks have copied their checkpoint files and one has more of them.
TEST(FailureDetector, reports_no_stall_while_one_of_those_at_one_place_makes_progress) {
  Ward ward;
  ward.beats(at(4711, false, seconds(60)), {5});
  ward.detector.beat(5, at(4711, false, seconds(1)), ward.now);
  EXPECT_EQ(ward.verdict(), "");
}

TEST(FailureDetector, reports_no_stall_while_a_rank_is_silent) {
  Ward ward;
  ward.beats(at(4711, true, seconds(46)));
  for (int second = 0; second < 5; ++second) {
    ward.now += seconds(1);
    ward.beats(at(4711, true, seconds(47 + second)), {5});
    EXPECT_EQ(ward.verdict(), "") << second;
  }
  ward.now += Milliseconds(1);
  EXPECT_EQ(ward.verdict().find("rank 5 (host n2, pid 105) stopped answering 5"), 0u);
}

TEST(FailureDetector, detects_stalls_only_after_the_first_report) {
  Ward ward;
  Beat unwatched;
  unwatched.still = seconds(500);
  ward.beats(unwatched);
  EXPECT_EQ(ward.verdict(), "");
  ward.beats(at(1, true, seconds(60)), {4});
  ward.expect_verdict("a stall before the first step", {"rank 4 (host n2, pid 104)", "500 s"});
}

TEST(FailureDetector, detects_no_stall_if_disabled) {
  Ward ward;
  ward.detector = FailureDetector(8, {.stall = Milliseconds(0)});
  for (int rank = 0; rank < 8; ++rank)
    ward.detector.joined(rank, ward.now);
  ward.beats(at(4711, true, seconds(5000)));
  EXPECT_EQ(ward.verdict(), "");
}

TEST(FailureDetector, counts_its_own_sleep_against_no_rank) {
  Ward ward;
  ward.now += seconds(100);
  ward.detector.slept(seconds(99), ward.now);
  EXPECT_EQ(ward.verdict(), "");
}

TEST(FailureDetector, reads_beats_as_they_were_written) {
  const auto beat = at(4711, true, Milliseconds(1234));
  const auto bytes = encode(beat);
  const auto again = decode_beat(bytes);
  EXPECT_EQ(again.activity.step, 120);
  EXPECT_EQ(again.activity.collectives, 4711u);
  EXPECT_TRUE(again.activity.inside);
  EXPECT_EQ(again.activity.collective, beat.activity.collective);
  EXPECT_EQ(again.activity.unit, beat.activity.unit);
  EXPECT_EQ(again.still, beat.still);
  EXPECT_TRUE(again.watched);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(decode_beat(std::span(bytes).first(n)), DataError) << n;
  auto longer = bytes;
  longer.push_back({});
  EXPECT_THROW(decode_beat(longer), DataError);
}

TEST(FailureDetector, cuts_long_names) {
  EXPECT_EQ(Activity::name(std::string(100, 'x')).back(), '\0');
}

TEST(FailureDetector, names_a_few_of_many_silent_ranks) {
  constexpr int kRanks = 4096;
  FailureDetector detector(kRanks, Timing{});
  const auto now = Deadline() + seconds(1000);
  for (int rank = 0; rank < kRanks; ++rank) {
    detector.introduce(rank, {str("n", rank / 8), rank});
    detector.joined(rank, now);
    const bool answers = rank % 16 < 8;
    detector.beat(rank, at(answers ? 10 : 9, answers), answers ? now + seconds(6) : now);
  }
  const auto verdict = detector.verdict(now + seconds(6));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->lost.size(), 2048u);
  EXPECT_TRUE(verdict->text.ends_with("and 2040 more ranks")) << verdict->text;
  EXPECT_LT(verdict->text.size(), 4000u);
}

}  // namespace lockstep::testing::watch_test
