#include "tests/model/oracle.h"

#include <gtest/gtest.h>

namespace lockstep::testing::oracle_test {

class AgainstPyTorch : public ::testing::TestWithParam<Family> {};

TEST_P(AgainstPyTorch, fp32_logits_loss_and_every_gradient_agree) {
  Loaded loaded(GetParam(), DType::fp32);
  loaded.expect_fp32(loaded.compute());
}

TEST_P(AgainstPyTorch, bf16_is_as_close_to_fp32_as_pytorch_in_bf16) {
  Loaded loaded(GetParam(), DType::bf16);
  loaded.expect_bf16(loaded.compute());
}

INSTANTIATE_TEST_SUITE_P(all, AgainstPyTorch, ::testing::ValuesIn(kFamilies),
                         [](const auto& p) { return std::string(name(p.param)); });

}  // namespace lockstep::testing::oracle_test
