#include "kernels/elementwise.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::elementwise_test {

struct ElementwiseCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, ElementwiseCuda, kFloatTypes, dtype_name);

// A part of a larger tensor that begins anywhere, so that packs do not fit everywhere.
Twin part_of(const Twin& t, std::int64_t first, std::int64_t count) {
  return {t.host.rows(first, count), t.device.rows(first, count)};
}

TEST_P(ElementwiseCuda, fill_writes_its_elements_and_no_others) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw.size(most(5000, 5000000));
    const auto first = draw.coin() ? 0 : draw.between(0, n - 1);
    const auto out = t.random({n}, GetParam()), integers = t.integers_below(100, {n});
    const auto count = draw.between(0, n - first);
    t.run([&](const Side& on) {
      fill(on.stream, on(part_of(out, first, count)), 0.3f);
      fill_integer(on.stream, on(part_of(integers, first, count)), 1 << 30);
    });
    t.expect_equal(out, "out");
    t.expect_equal(integers, "integers");
  });
}

TEST_P(ElementwiseCuda, convert_rounds_as_on_the_cpu) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw.size(most(5000, 5000000));
    const auto first = draw.coin() ? 0 : draw.between(0, n - 1);
    const auto x = t.random({n}, GetParam());
    const auto same = t.poisoned({n}, GetParam());
    const auto other = t.poisoned({n}, GetParam() == DType::fp32 ? DType::bf16 : DType::fp32);
    t.run([&](const Side& on) {
      const auto in = on(part_of(x, first, n - first));
      convert(on.stream, on(part_of(same, first, n - first)), in);
      convert(on.stream, on(part_of(other, first, n - first)), in);
    });
    t.expect_equal(same, "the same type");
    t.expect_equal(other, "the other type");
  });
}

TEST_P(ElementwiseCuda, random_normal_draws_the_numbers_of_the_cpu) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto n = draw.size(most(3000, 5000000));
    const auto out = t.poisoned({n}, GetParam());
    const RandomNormal args{.seed = draw.seed() << 33,
                            .purpose = purpose_of("weights"),
                            .first_index = draw.between(0, 4000),
                            .std = 0.02f};
    t.run([&](const Side& on) { random_normal(on.stream, on(out), args); });
    t.expect_close(out, "numbers");
  });
}

}  // namespace lockstep::testing::elementwise_test
