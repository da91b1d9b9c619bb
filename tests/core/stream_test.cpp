#include "core/stream.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "core/error.h"

namespace lockstep::stream_test {

TEST(QueuedStream, runs_work_in_order_on_a_separate_thread) {
  Stream stream(Device{}, "test", Stream::Mode::queued);
  std::vector<int> seen;
  std::thread::id worker;
  for (int i = 0; i < 1000; ++i)  // more than the queue's slots
    stream.enqueue([&seen, &worker, i](Stream& inner) {
      seen.push_back(i);
      worker = std::this_thread::get_id();
      inner.parallel_for(1, [](std::int64_t, int) {});
    });
  stream.synchronize();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(QueuedStream, an_event_is_done_as_soon_as_all_work_before_it_is) {
  Stream stream(Device{}, "test", Stream::Mode::queued);
  std::atomic<bool> go = false;
  int done = 0;
  stream.enqueue([&done](Stream&) { done = 1; });
  const Event first = stream.record();
  stream.enqueue([&go](Stream&) {
    while (!go)
      std::this_thread::yield();
  });
  first.synchronize();  // although the stream is not done
  EXPECT_EQ(done, 1);
  go = true;
  stream.synchronize();
}

TEST(QueuedStream, streams_wait_for_each_other) {
  Stream first(Device{}, "first", Stream::Mode::queued),
      second(Device{}, "second", Stream::Mode::queued), compute(Device{}, "compute");
  int value = 0;
  for (int i = 0; i < 200; ++i) {
    first.enqueue([&value](Stream&) { value = 2 * value + 1; });
    second.wait(first.record());
    second.enqueue([&value](Stream&) { value = value % 1000; });
    first.wait(second.record());
  }
  compute.wait(first.record());  // the caller waits
  int expected = 0;
  for (int i = 0; i < 200; ++i)
    expected = (2 * expected + 1) % 1000;
  EXPECT_EQ(value, expected);
}

TEST(QueuedStream, an_error_stops_it_and_reaches_waiting_callers) {
  Stream stream(Device{}, "test", Stream::Mode::queued),
      other(Device{}, "other", Stream::Mode::queued);
  bool later = false;
  const Event before = stream.record();
  stream.enqueue([](Stream&) { throw DataError("a torn page"); });
  stream.enqueue([&later](Stream&) { later = true; });
  other.wait(stream.record());
  other.enqueue([&later](Stream&) { later = true; });
  before.synchronize();
  EXPECT_THROW(stream.synchronize(), DataError);
  EXPECT_THROW(other.synchronize(), DataError);
  EXPECT_FALSE(later);
}

TEST(QueuedStream, runs_no_parallel_loops) {
  Stream stream(Device{}, "test", Stream::Mode::queued);
  EXPECT_THROW(stream.parallel_for(1, [](std::int64_t, int) {}), Error);
  EXPECT_THROW(Stream(Device{Device::Kind::cuda, 0}, "gpu", Stream::Mode::queued), Error);
}

TEST(QueuedStream, its_destructor_waits_for_its_work) {
  std::atomic<int> done = 0;
  {
    Stream stream(Device{}, "test", Stream::Mode::queued);
    for (int i = 0; i < 50; ++i)
      stream.enqueue([&done](Stream&) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++done;
      });
  }
  EXPECT_EQ(done, 50);
}

}  // namespace lockstep::stream_test
