#include "core/timeline.h"

#include <atomic>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "tests/files.h"

namespace lockstep::testing::timeline_test {

void sleep_in(Stream& stream) {
  stream.enqueue([](Stream&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
}

TEST(Timeline, has_the_spans_of_streams_with_their_times) {
  Timeline timeline;
  std::atomic<bool> host_went_on = false;
  Stream compute(Device{}, "compute"), queued(Device{}, "gathers", Stream::Mode::queued);
  compute.set_timeline(&timeline);
  queued.set_timeline(&timeline);
  {
    const Timeline::Span first(queued, "layer 1", "unit");
    sleep_in(queued);
    const Timeline::Span inner(queued, "all_gather", "shard gathers");
    queued.enqueue([&](Stream&) { host_went_on.wait(false); });
    sleep_in(queued);
  }
  {
    const Timeline::Span beside(compute, "gemm", "gemm");
    sleep_in(compute);
    host_went_on = true;
    host_went_on.notify_all();
  }
  queued.synchronize();
  const auto spans = timeline.spans();
  ASSERT_EQ(spans.size(), 3u);
  const auto &inner = spans[0], &outer = spans[1], &beside = spans[2];
  EXPECT_EQ(inner.name + outer.name + beside.name, "all_gatherlayer 1gemm");
  EXPECT_EQ(inner.row + outer.row + beside.row, "gathersgatherscompute");
  EXPECT_EQ(inner.kind, "shard gathers");
  EXPECT_GE(inner.begin - outer.begin, 0.002);
  EXPECT_GE(inner.end - inner.begin, 0.002);
  EXPECT_GE(outer.end, inner.end);
  EXPECT_LT(beside.begin, inner.end);
  EXPECT_GE(beside.end - beside.begin, 0.002);
}

TEST(Timeline, has_no_spans_of_a_stream_without_a_timeline) {
  Timeline timeline;
  Stream compute(Device{}, "compute");
  { const Timeline::Span span(compute, "gemm", "gemm"); }
  compute.set_timeline(&timeline);
  compute.set_timeline(nullptr);
  { const Timeline::Span span(compute, "gemm", "gemm"); }
  EXPECT_TRUE(timeline.spans().empty());
}

TEST(Timeline, is_written_in_chromes_format) {
  const TemporaryDirectory directory;
  Timeline timeline;
  Stream compute(Device{}, "compute");
  compute.set_timeline(&timeline);
  for (const char* name : {"gemm", "attention"}) {
    const Timeline::Span span(compute, name, "component");
    sleep_in(compute);
  }
  timeline.write(directory.path() / "trace.json", 3);
  const Json json = Json::parse(read_text(directory.path() / "trace.json", 1 << 20), "trace");
  const auto& events = json.at("traceEvents").as_array();
  ASSERT_EQ(events.size(), 4u);  // two names, two spans
  EXPECT_EQ(events[0].at("args").at("name").as_string(), "rank 3");
  EXPECT_EQ(events[1].at("args").at("name").as_string(), "compute");
  EXPECT_EQ(events[2].at("name").as_string(), "gemm");
  EXPECT_EQ(events[2].at("ph").as_string(), "X");
  EXPECT_GE(events[2].at("dur").as_double(), 2000);  // microseconds
  EXPECT_GE(events[3].at("ts").as_double(),
            events[2].at("ts").as_double() + events[2].at("dur").as_double());
}

}  // namespace lockstep::testing::timeline_test
