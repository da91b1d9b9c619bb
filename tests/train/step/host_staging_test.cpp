#include "train/step/host_staging.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "tests/train/training_rig.h"
#include "train/step/state_slices.h"

namespace lockstep::testing::host_staging_test {

// Two tensors of the CPU, of which this rank saves the first.
struct TwoSlices {
  TwoSlices() {
    for (const auto& [tensor, name, owned] :
         {std::tuple(saved, "saved", true), {loaded, "loaded", false}}) {
      auto slice = whole_slice(name, tensor);
      slice.owned = owned;
      slices.push_back(slice);
    }
  }
  Bench bench;
  Tensor saved = bench.poisoned({1000}, DType::fp32), loaded = bench.poisoned({10}, DType::fp32);
  std::vector<StateSlice> slices;
};

void fill(Tensor t, float value) {
  std::fill_n(t.as<float>(), t.elements(), value);
}

float first(const StateSlice& slice) {
  return *slice.local.as<float>();
}

TEST(HostStaging, keeps_its_copy_while_the_state_changes) {
  TwoSlices two;
  HostStaging host(two.slices, two.bench.stream, HostStaging::Copies::owned);
  EXPECT_FALSE(host.shares_state());
  for (const float value : {1.0f, 2.0f}) {
    fill(two.saved, value);
    host.take();
    host.taken().synchronize();
    fill(two.saved, 9);
    EXPECT_EQ(first(host.slices()[0]), value);
    EXPECT_EQ(host.slices()[0].local.as<float>()[999], value);
  }
}

TEST(HostStaging, sends_loaded_values_to_the_state) {
  TwoSlices two;
  HostStaging host(two.slices, two.bench.stream, HostStaging::Copies::owned);
  host.prepare_to_read();
  fill(host.slices()[0].local, 3);
  fill(host.slices()[1].local, 4);  // the state itself
  host.send();
  EXPECT_EQ(*two.saved.as<float>(), 3);
  EXPECT_EQ(*two.loaded.as<float>(), 4);
}

TEST(HostStaging, without_copies_shares_the_state) {
  TwoSlices two;
  HostStaging host(two.slices, two.bench.stream);
  EXPECT_TRUE(host.shares_state());
  EXPECT_EQ(host.slices()[0].local.data, two.saved.data);
  EXPECT_EQ(HostStaging::bytes(two.slices, Device{}, HostStaging::Copies::none), 0);
  EXPECT_EQ(HostStaging::bytes(two.slices, Device{}, HostStaging::Copies::owned),
            4096);  // of 4000, aligned
}

TEST(HostStaging, an_update_waits_for_the_event_that_holds_it) {
  Rig rig(tiny());
  rig.step(1, 1e-3);
  const auto before = rig.weights();
  Stream copying(Device{}, "copying", Stream::Mode::queued);
  Doubles copied;
  rig.training.begin_step(2, 1e-3);
  rig.training.micro_step(rig.batch(0, 2));
  rig.training.micro_step(rig.batch(2, 2));
  copying.enqueue([&copied, &rig](Stream&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // longer than the update takes
    copied = rig.weights();
  });
  rig.training.hold_update(copying.record());
  rig.training.finish_step();
  EXPECT_EQ(copied, before);
  EXPECT_NE(rig.weights(), before);
  rig.step(3, 1e-3);  // no event holds this step
}

}  // namespace lockstep::testing::host_staging_test
