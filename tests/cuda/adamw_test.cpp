#include "kernels/adamw.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::adamw_test {

TEST(AdamWControlCuda, equals_the_cpu_kernel) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float squares : {0.0f, 0.04f, 400.0f, infinity, nan})
    for (const float loss : {3.0f, infinity, nan})
      for (const std::int32_t valid : {0, 1, 70})
        for (const float clip : {0.0f, 1.0f}) {
          Twins t(1);
          const auto sums = t.random({2}, DType::fp32), rate = t.random({1}, DType::fp32);
          sums.host.as<float>()[0] = squares;
          sums.host.as<float>()[1] = loss;
          t.upload(sums.device, sums.host);
          const auto tokens = t.integers({valid}), step = t.integers({9}),
                     updates = t.integers({3});
          const auto control = t.poisoned({5}, DType::fp32), absmax = t.random({70}, DType::fp32);
          t.run([&](const Side& on) {
            adamw_control(on.stream, {on(rate), on(step), on(updates), on(control), on(absmax)},
                          {on(sums).rows(0, 1), on(sums).rows(1, 1), on(tokens)},
                          {.clip_norm = clip, .nominal_tokens = 100});
          });
          SCOPED_TRACE(str("squares ", squares, " loss ", loss, " valid ", valid));
          t.expect_equal(updates, "updates");
          t.expect_equal(absmax, "absmax");
          const Tensor actual = t.download(control.device);
          for (int i = 0; i < 5; ++i)
            EXPECT_TRUE(get(actual, i) == get(control.host, i) ||
                        std::abs(get(actual, i) / get(control.host, i) - 1) < 1e-6 ||
                        (std::isnan(get(actual, i)) && std::isnan(get(control.host, i))))
                << "control " << i << ": " << get(actual, i);
        }
}

}  // namespace lockstep::testing::adamw_test
