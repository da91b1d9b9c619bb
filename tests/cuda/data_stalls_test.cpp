// The time that a GPU waits for data, if its host is ahead of it.
#include "train/step/data_stalls.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#ifdef LOCKSTEP_SIMT
#include "tests/simt/simt.h"
#endif

namespace lockstep::testing::data_stalls_test {

constexpr std::chrono::milliseconds kLate{50};
const double kLateSeconds = std::chrono::duration<double>(kLate).count();

// The device is idle.
void idle() {
#ifdef LOCKSTEP_SIMT
  simt::pass_time(std::chrono::nanoseconds(kLate).count());
#else
  std::this_thread::sleep_for(kLate);
#endif
}

TEST(DataStallsCuda, are_the_idle_time_of_the_device_and_not_the_wait_of_its_host) {
  Stream stream({Device::Kind::cuda, 0}, "compute");
  DataStalls waits(stream);
  stream.synchronize();
  waits.begin();
  idle();
  waits.end(kLateSeconds);
  stream.synchronize();
  EXPECT_NEAR(waits.take(), kLateSeconds, 0.2 * kLateSeconds);
  EXPECT_EQ(waits.take(), 0) << "taken twice";

  waits.begin();
  waits.end(0);  // the data were ready
  stream.synchronize();
  EXPECT_EQ(waits.take(), 0);

  waits.begin();
  waits.end(5);  // the device was busy until shortly before, and waited for the host's two calls
  stream.synchronize();
  EXPECT_LT(waits.take(), 0.2 * kLateSeconds);
}

}  // namespace lockstep::testing::data_stalls_test
