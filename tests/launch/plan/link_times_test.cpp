#include "launch/plan/link_times.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/thread_world.h"
#include "tests/wording.h"

namespace lockstep::testing::link_times_test {

using Times = std::vector<std::pair<double, double>>;

TEST(LinkTimes, exact_times_give_their_latency_and_bandwidth) {
  for (const double latency : {0.0, 3e-6, 5e-3})
    for (const double bandwidth : {1e6, 3e9}) {
      Times times;
      for (double bytes = 1000; bytes < 1e9; bytes *= 7)
        times.emplace_back(bytes, latency + bytes / bandwidth);
      const auto link = fit_link(times);
      EXPECT_NEAR(link.latency_seconds, latency, 1e-6 * (latency + 1e-6));
      EXPECT_NEAR(link.bytes_per_second, bandwidth, 1e-6 * bandwidth);
      EXPECT_LT(link.worst_error, 1e-6);
    }
}

// No other line has a smaller sum of squared relative errors.
TEST(LinkTimes, the_fitted_line_has_the_least_squared_error) {
  const Times times{{1e3, 5e-6}, {1e4, 7e-6}, {1e5, 30e-6}, {1e6, 400e-6}, {1e7, 2.5e-3}};
  const auto squares = [&](const LinkTime& link) {
    double sum = 0;
    for (const auto& [bytes, seconds] : times) {
      const double off = (link.latency_seconds + bytes / link.bytes_per_second) / seconds - 1;
      sum += off * off;
    }
    return sum;
  };
  const auto best = fit_link(times);
  for (const double latency : {0.9, 0.99, 1.01, 1.1})
    for (const double bandwidth : {0.9, 0.99, 1.01, 1.1}) {
      LinkTime other = best;
      other.latency_seconds *= latency;
      other.bytes_per_second *= bandwidth;
      EXPECT_GE(squares(other), squares(best));
    }
}

// Between two sizes, times follow the line through both in logarithms. Below the first size they
// are constant; above the last one they grow in proportion.
TEST(LinkTimes, other_sizes_are_interpolated_and_extrapolated) {
  const auto link = fit_link({{1e3, 5e-6}, {1e5, 5e-5}, {1e6, 1e-3}});
  EXPECT_DOUBLE_EQ(link.seconds(10), 5e-6);
  EXPECT_DOUBLE_EQ(link.seconds(1000), 5e-6);
  EXPECT_NEAR(link.seconds(10'000), 5e-6 * std::sqrt(10), 1e-12);
  EXPECT_DOUBLE_EQ(link.seconds(100'000), 5e-5);
  EXPECT_NEAR(link.seconds(316'228), 5e-5 * std::sqrt(20), 1e-9);
  EXPECT_DOUBLE_EQ(link.seconds(1'000'000), 1e-3);
  EXPECT_DOUBLE_EQ(link.seconds(5'000'000), 5e-3);
}

TEST(LinkTimes, impossible_times_are_rejected) {
  // A link with `members` is rejected.
  const auto refused = [](const std::string& members) {
    const auto text =
        str(R"([{"collective": "all_gather", "ranks": 2, "domains": 1, "beside": false,)",
            R"( "worst_error": 0, )", members, "}]");
    expect_refusal<DataError>("launch/link_times", members, {"[0]"},
                              [&] { LinkTimes::parse(Json::parse(text, "links")); });
  };
  for (const char* times :
       {"[]", R"([{"bytes": 0, "seconds": 1}])", R"([{"bytes": 4, "seconds": 0}])",
        R"([{"bytes": 4, "seconds": 1}, {"bytes": 4, "seconds": 2}])"})
    refused(str(R"("latency_seconds": 0, "bytes_per_second": 1, "times": )", times));
  for (const char* rate : {R"("latency_seconds": -1, "bytes_per_second": 1e9)",
                           R"("latency_seconds": 1e308, "bytes_per_second": 1e9)",
                           R"("latency_seconds": 0, "bytes_per_second": 1e-300)"})
    refused(str(rate, R"(, "times": [{"bytes": 4, "seconds": 1}])"));
  const auto gossip = Json::parse(R"([{"collective": "gossip"}])", "links");
  expect_refusal<DataError>("launch/link_times", "gossip", {"gossip"},
                            [&] { LinkTimes::parse(gossip); });
}

TEST(LinkTimes, times_that_fit_no_line_give_no_negative_numbers) {
  const auto falling = fit_link({{1e3, 9e-3}, {1e6, 5e-3}, {1e7, 4e-3}});
  EXPECT_GE(falling.latency_seconds, 0);
  EXPECT_GT(falling.bytes_per_second, 0);
  EXPECT_LE(falling.bytes_per_second, 1e7 / 4e-3) << "the fastest call";
  const auto level = fit_link({{1e3, 4e-3}, {1e6, 4e-3}, {1e7, 4e-3}});
  EXPECT_LE(level.bytes_per_second, 1e7 / 4e-3);
  const auto steep = fit_link({{1e6, 1e-3}, {2e6, 5e-3}, {4e6, 50e-3}});
  EXPECT_GE(steep.latency_seconds, 0);
  EXPECT_GT(steep.bytes_per_second, 0);
}

TEST(LinkTimes, are_measured_between_ranks_and_read_back_as_written) {
  const Mesh mesh{.shard = 2, .tensor = 2};
  std::vector<LinkTimes> measured(4);
  run_thread_ranks(4, [&](World& world) {
    Stream compute(Device{}, "compute");
    Arena memory = LinkTimes::memory(world, Device{});
    Comms comms = make_comms(world, mesh);
    measured[static_cast<std::size_t>(world.rank())] = LinkTimes::measure(comms, memory, compute);
  });
  // Three kinds each: four and two ranks on the compute stream, and two ranks beside it.
  for (const auto& times : measured) {
    EXPECT_EQ(times.links().size(), 9u);
    for (const auto& link : times.links()) {
      EXPECT_GE(link.latency_seconds, 0);
      EXPECT_GT(link.bytes_per_second, 0);
    }
  }
  const auto& times = measured.front();
  const auto again = LinkTimes::parse(Json::parse(times.to_json().dump(), "links"));
  ASSERT_EQ(again.links().size(), times.links().size());
  for (const bool beside : {false, true})
    for (const auto kind :
         {Collective::all_gather, Collective::all_to_all, Collective::all_reduce}) {
      const auto seconds = times.seconds(kind, {.ranks = 2, .domains = 1}, beside, 1 << 20);
      ASSERT_TRUE(seconds);
      EXPECT_DOUBLE_EQ(*again.seconds(kind, {.ranks = 2, .domains = 1}, beside, 1 << 20), *seconds);
      EXPECT_GT(*times.seconds(kind, {.ranks = 2, .domains = 1}, beside, 1 << 30), *seconds);
    }
  EXPECT_FALSE(times.seconds(Collective::all_gather, {.ranks = 2, .domains = 2}, false, 1));
}

}  // namespace lockstep::testing::link_times_test
