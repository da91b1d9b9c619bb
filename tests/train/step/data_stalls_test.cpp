#include "train/step/data_stalls.h"

#include <gtest/gtest.h>

namespace lockstep::testing::data_stalls_test {

TEST(DataStalls, on_a_cpu_are_those_of_the_host) {
  Stream stream(Device{}, "compute");
  DataStalls waits(stream);
  for (const double seconds : {0.5, 0.0, 0.25}) {
    waits.begin();
    waits.end(seconds);
  }
  EXPECT_EQ(waits.take(), 0.75);
  EXPECT_EQ(waits.take(), 0);
}

}  // namespace lockstep::testing::data_stalls_test
