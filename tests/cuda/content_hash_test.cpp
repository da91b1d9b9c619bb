#include "kernels/content_hash.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::content_hash_test {

struct ContentHashCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, ContentHashCuda, kFloatTypes, dtype_name);

TEST_P(ContentHashCuda, equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto x = t.random({draw.size(most(20000, 4000000))}, GetParam());
    const auto hash = t.integers({static_cast<std::int32_t>(draw.between(-5, 5)), -1});
    const auto columns = draw.size(1000);
    const HashPlace place{.purpose = purpose_of("x"),
                          .first_index = draw.between(0, 1 << 20),
                          .first = draw.between(0, 1000),
                          .columns = columns,
                          .stride = columns * draw.between(1, 8)};
    t.run([&](const Side& on) { add_content_hash(on.stream, on(hash), on(x), place); });
    t.expect_equal(hash, "hash");
  });
}

}  // namespace lockstep::testing::content_hash_test
