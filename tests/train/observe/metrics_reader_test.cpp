#include "train/observe/metrics_reader.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "core/json.h"
#include "core/philox.h"
#include "tests/wording.h"
#include "train/observe/metrics_log.h"

namespace lockstep::testing::metrics_reader_test {

StepReport at(std::int64_t step, double loss = 3.25) {
  StepReport r;
  r.step = step;
  r.loss = loss;
  r.grad_norm = 0.5;
  r.learning_rate = 6e-4;
  r.step_seconds = 0.25;
  r.tokens_per_second = 123456.5;
  r.model_flops_utilization = 0.471;
  r.data_wait_seconds = 0.001;
  r.tokens_seen = 4096 * step;
  r.peak_bytes = std::int64_t{1} << 40;
  for (std::size_t i = 0; i < kComponents; ++i)
    r.time.seconds[i] = 0.01 * static_cast<double>(i + 1);
  r.evaluation_seconds = 0.5;
  r.eta_seconds = 99;
  r.weight_hash = 77;
  return r;
}

std::string line_of(std::int64_t step, double loss = 3.25) {
  return to_json_line(at(step, loss),
                      1.7e9 + static_cast<double>(step) + loss / 8);  // another time
}

// What the reader says of a file from its begin to its end, and how often it began anew.
struct Follower {
  explicit Follower(const std::filesystem::path& path,
                    std::int64_t most_bytes = MetricsReader::kAll)
      : reader(path, most_bytes) {}
  bool poll() {
    return reader.poll([&] { steps.clear(), ++anew; },
                       [&](const StepMetrics& line) { steps.push_back(line); });
  }
  std::vector<std::int64_t> numbers() const {
    std::vector<std::int64_t> all;
    for (const auto& step : steps)
      all.push_back(step.step);
    return all;
  }

  MetricsReader reader;
  std::vector<StepMetrics> steps;
  int anew = 0;
};

void expect_left_out(const Follower& follower, std::initializer_list<const char*> pins) {
  const auto text = follower.reader.first_left_out();
  for (const char* pin : pins)
    expect_contains(text, pin);
  expect_wording("train/metrics_reader", str("left out, ", *pins.begin()), text);
}

std::string lines_of(std::int64_t first, std::int64_t last, double loss = 3.25) {
  std::string text;
  for (auto step = first; step <= last; ++step)
    text += line_of(step, loss);
  return text;
}

using Numbers = std::vector<std::int64_t>;

class MetricsReaderTest : public ::testing::Test {
 protected:
  void append(std::string_view text) const {
    std::ofstream(path_, std::ios::binary | std::ios::app)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  // A reader that has read a new file of this text.
  Follower read(const std::string& text) const {
    spit(path_, text);
    Follower follower(path_);
    follower.poll();
    return follower;
  }

  TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "metrics.jsonl";
};

TEST(MetricsReader, every_member_reads_back_as_the_log_wrote_it) {
  auto report = at(12);
  report.validation_loss = 3.5;
  report.skipped = true;
  auto text = to_json_line(report, 1700000000.25);
  text.pop_back();
  const auto line = parse_metrics_line(text);
  const auto json = Json::parse(text, "line", 1);
  EXPECT_EQ(line.step, 12);
  int known = 0;
  for (int i = 0; i < kMetrics; ++i) {
    const auto metric = static_cast<Metric>(i);
    const std::string called = name(metric);
    // A part of a step is its name with the unit.
    const Json* value = json.find(called);
    if (value == nullptr) value = json.find(called + "_seconds");
    if (value == nullptr || value->is_null()) {
      EXPECT_TRUE(std::isnan(line[metric])) << called;
      continue;
    }
    EXPECT_EQ(line[metric], value->is_bool() ? 1.0 * value->as_bool() : value->as_double())
        << called;
    ++known;
  }
  EXPECT_EQ(known, kMetrics - 4);  // no square MFU and no z here; communication is of older lines
  EXPECT_EQ(line[Metric::validation_loss], 3.5);
  EXPECT_EQ(line[Metric::skipped], 1);
}

TEST(MetricsReader, parts_of_a_step_have_the_names_of_today_and_of_before) {
  EXPECT_EQ(parse_metrics_line(R"({"step":1,"gemm_seconds":0.5})")[part(Component::products)], 0.5);
  EXPECT_EQ(parse_metrics_line(R"({"step":1,"products_seconds":0.5})")[part(Component::products)],
            0.5);
  const auto line = parse_metrics_line(
      R"( { "communication_tensor_seconds" : 1, "other_seconds" : 2e0 , "step" : 7 } )");
  EXPECT_EQ(line[part(Component::communication_tensor)], 1);
  EXPECT_EQ(line[part(Component::other)], 2);
  EXPECT_EQ(line.step, 7);
  EXPECT_TRUE(std::isnan(line[Metric::communication]));
}

TEST(MetricsReader, a_line_that_lies_is_refused_with_what_is_wrong) {
  const std::pair<const char*, const char*> lines[] = {
      {"", "at byte 0: "},
      {"[1]", "at byte 0: "},
      {"{}", "\"step\""},
      {R"({"loss":1})", "\"step\""},
      {R"({"step":1)", "at byte 9: "},
      {R"({"step":1} x)", "at byte 11: "},
      {R"({"step":"1"})", "\"step\""},
      {R"({"step":-1})", "\"step\""},
      {R"({"step":0})", "1"},
      {R"({"step":1.5})", "at byte 11: "},
      {R"({"step":1e3})", "at byte 11: "},
      {R"({"step":99999999999999999999})", "at byte 28: "},
      {R"({"step":1,"step":2})", "\"step\""},
      {R"({"step":1,"loss":"3"})", "\"loss\""},
      {R"({"step":1,"loss":true})", "\"loss\""},
      {R"({"step":1,"loss":NaN})", "\"loss\""},
      {R"({"step":1,"loss":Infinity})", "\"loss\""},
      {R"({"step":1,"loss":1e999})", "at byte 22: "},
      {R"({"step":1,"loss":01})", "at byte 18: "},
      {R"({"step":1,"loss":1.})", "at byte 19: "},
      {R"({"step":1,"loss":1,"loss":1})", "\"loss\""},
      {R"({"step":1,"gemm_seconds":1,"products_seconds":1})", "_seconds\""},
      {R"({"step":1,"skipped":1})", "\"skipped\""},
      {R"({"step":1,"x":{}})", "at byte 14: "},
      {R"({"step":1,"x":"a)", "at byte 16: "},
      {R"({"step":1,"x":"\q"})", "at byte 16: "},
      {"{\"step\":1,\"x\":\"\n\"}", "at byte 15: "},
  };
  for (const auto& [line, pin] : lines)
    expect_refusal<DataError>("train/metrics_reader", line, {pin},
                              [&, text = line] { parse_metrics_line(text); });
  EXPECT_EQ(parse_metrics_line(R"({"step":1,"loss":null,"x":"a\"\u00e9","y":true})").step, 1);
}

TEST_F(MetricsReaderTest, what_is_left_out_is_counted_and_the_rest_is_read) {
  const std::string zeros(100, '\0'), next = line_of(5);
  auto follower =
      read(line_of(1) + "a note\n" + line_of(2) + zeros + "\n" + line_of(3) + line_of(2) +
           line_of(3 + MetricsReader::kMostHole + 1) + line_of(4) + next.substr(0, 40));
  EXPECT_EQ(follower.numbers(), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(follower.reader.lines(), 8);
  EXPECT_EQ(follower.reader.left_out(), 4);
  expect_left_out(follower, {"line 2: at byte 0: "});
  EXPECT_EQ(follower.reader.unfinished_bytes(), 40);
  append(next.substr(40));
  follower.poll();
  EXPECT_EQ(follower.numbers().back(), 5);
  EXPECT_EQ(follower.reader.unfinished_bytes(), 0);
  EXPECT_EQ(follower.anew, 0);
}

TEST_F(MetricsReaderTest, a_damaged_step_costs_its_line_alone_wherever_it_stands) {
  for (const int at : {1, 2, 10, 699, 700})
    for (const std::int64_t step : {1, 8, 11, 12, 610, 701, 7000, 900'000}) {
      if (step == at) continue;
      SCOPED_TRACE(str("step ", step, " at line ", at));
      const auto follower = read(lines_of(1, at - 1) + line_of(step) + lines_of(at + 1, 700));
      const auto numbers = follower.numbers();
      EXPECT_EQ(numbers.size(), 699u);
      EXPECT_EQ(std::ranges::count(numbers, at), 0);
      EXPECT_EQ(numbers.back(), at == 700 ? 699 : 700);
      const bool is_held = at == 700 && step > 700;  // no line says that it is damage
      EXPECT_EQ(follower.reader.held_back().has_value(), is_held);
      EXPECT_EQ(follower.reader.left_out(), is_held ? 0 : 1);
      if (at == 10 && step == 610) expect_left_out(follower, {"line 10: step 610", "step 11"});
    }
}

TEST_F(MetricsReaderTest, a_gap_does_not_hide_damage_after_it) {
  for (const int damaged : {501, 502, 503})
    for (const int step : {510, 900, 5000}) {
      SCOPED_TRACE(str("step ", step, " in place of ", damaged));
      const auto follower = read(lines_of(1, 2) + lines_of(500, damaged - 1) + line_of(step) +
                                 lines_of(damaged + 1, 1200));
      EXPECT_EQ(follower.steps.size(), 702u);
      EXPECT_EQ(follower.reader.left_out(), 1);
    }
}

TEST_F(MetricsReaderTest,
       steps_that_are_far_from_each_other_are_read_once_a_line_goes_on_from_them) {
  auto far = read(line_of(1) + line_of(2) + line_of(500));
  EXPECT_EQ(far.numbers(), (Numbers{1, 2}));
  EXPECT_EQ(far.reader.held_back()->step, 500);
  for (const int step : {510, 520, 530}) {  // each tenth from here on
    append(line_of(step));
    far.poll();
  }
  EXPECT_EQ(far.numbers(), (Numbers{1, 2, 500, 510, 520, 530}));
  EXPECT_EQ(far.reader.left_out(), 0);
  // A log may begin at any step.
  auto late = read(line_of(501));
  EXPECT_EQ(late.reader.held_back()->step, 501);
  expect_wording("train/metrics_reader", "held back", late.reader.why_held_back());
  append(lines_of(502, 503));
  late.poll();
  EXPECT_EQ(late.numbers(), (Numbers{501, 502, 503}));
  EXPECT_EQ(late.reader.left_out(), 0);
}

TEST_F(MetricsReaderTest, a_line_of_any_length_is_left_out_alone) {
  const std::string filler(3 * MetricsReader::kMostLineBytes, 'x');
  auto follower = read(line_of(1) + R"({"step":2,"x":")" + filler);
  EXPECT_LE(follower.reader.unfinished_bytes(), MetricsReader::kMostLineBytes);
  for (int i = 0; i < 3; ++i) {  // it grows while it is followed
    append(filler);
    follower.poll();
  }
  append("\"}\n" + line_of(3));
  follower.poll();
  EXPECT_EQ(follower.numbers(), (Numbers{1, 3}));
  EXPECT_EQ(follower.reader.left_out(), 1);
  expect_left_out(follower, {"line 2: ", "1048576"});
  EXPECT_EQ(follower.anew, 0);
}

TEST_F(MetricsReaderTest, whatever_pieces_a_file_grows_by_the_lines_are_those_of_the_whole) {
  std::string text;
  for (int step = 1; step <= 40; ++step)
    text += line_of(step) + (step % 7 == 0 ? "\n" : "");
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::filesystem::remove(path_);
    Follower follower(path_);
    EXPECT_FALSE(follower.poll());
    for (std::size_t at = 0, draw = 0; at < text.size(); ++draw) {
      const std::size_t bytes = philox(5, round, draw)[0] % 900;
      append(text.substr(at, bytes));
      at += std::min(bytes, text.size() - at);
      EXPECT_TRUE(follower.poll());
    }
    EXPECT_EQ(follower.steps.size(), 40u) << round;
    EXPECT_EQ(follower.steps.back()[Metric::tokens_seen], 4096 * 40);
    EXPECT_EQ(follower.reader.lines(), 45);
    EXPECT_EQ(follower.anew, 0);
  }
}

TEST_F(MetricsReaderTest, a_run_that_goes_on_from_before_is_read_anew_however_far_it_came) {
  for (const int came_to : {5, 6, 9, 10, 11, 30}) {
    auto follower = read(lines_of(1, 10, 2));
    EXPECT_EQ(follower.steps.size(), 10u);
    // As a resume: cut, and written again.
    std::ofstream(path_, std::ios::binary) << lines_of(1, 5, 2) << lines_of(6, came_to, 3);
    follower.poll();
    EXPECT_EQ(follower.anew, 1) << came_to;
    ASSERT_EQ(std::ssize(follower.steps), came_to);
    for (const auto& step : follower.steps)
      EXPECT_EQ(step[Metric::loss], step.step <= 5 ? 2 : 3);
  }
}

TEST_F(MetricsReaderTest, a_long_file_is_read_in_pieces_of_what_a_poll_may_take) {
  std::string text;
  for (int step = 1; std::ssize(text) < 9 * MetricsReader::kMostLineBytes; ++step)
    text += line_of(step) + std::string(step % 50 == 0 ? 100'000 : 10, 'x') + "\n";
  const auto whole = read(text);
  EXPECT_EQ(whole.reader.share_read(), 1);
  Follower pieces(path_, 2 * MetricsReader::kMostLineBytes);
  int polls = 0;
  double share = 0;
  do {
    pieces.poll();
    ++polls;
    EXPECT_GT(pieces.reader.share_read(), share);
    share = pieces.reader.share_read();
    EXPECT_LT(share, 0.26 * polls);
  } while (share < 1);
  EXPECT_EQ(polls, 5);
  EXPECT_EQ(pieces.numbers(), whole.numbers());
  EXPECT_EQ(pieces.reader.left_out(), whole.reader.left_out());
  EXPECT_EQ(pieces.anew, 0);
}

TEST_F(MetricsReaderTest, a_file_may_go_and_come_again_and_a_directory_is_none) {
  Follower follower(path_);
  EXPECT_FALSE(follower.poll());
  spit(path_, line_of(1));
  EXPECT_TRUE(follower.poll());
  std::filesystem::remove(path_);
  EXPECT_FALSE(follower.poll());
  EXPECT_TRUE(follower.steps.empty());
  spit(path_, line_of(1) + line_of(2));
  EXPECT_TRUE(follower.poll());
  EXPECT_EQ(follower.steps.size(), 2u);
  Follower directory(directory_.path());
  expect_refusal<DataError>("train/metrics_reader", "a directory", {directory_.path().string()},
                            [&] { directory.poll(); });
}

}  // namespace lockstep::testing::metrics_reader_test
