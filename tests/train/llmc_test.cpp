#include "train/llmc.h"

#include <cstring>

#include "model/families.h"
#include "tests/files.h"
#include "tests/train/model_weights.h"

namespace lockstep::testing::llmc_test {

namespace fs = std::filesystem;

constexpr int kPadding = 3;  // rows behind the vocabulary

ModelConfig small() {
  auto c = family_defaults(Family::gpt2);
  c.layers = 2;
  c.width = 12;
  c.heads = c.kv_heads = 3;
  c.head_size = 4;
  c.mlp_width = 48;
  c.vocabulary = 7;
  c.max_positions = 5;
  return c;
}

// What llm.c writes: blocks of random numbers, each kept under the name of the parameter it is.
struct Written {
  std::map<std::string, Doubles> values;
  std::string bytes;
  DType dtype;
  std::uint64_t drawn = 0;

  explicit Written(DType type) : dtype(type) {
    const auto c = small();
    std::int32_t header[256] = {20240326,    type == DType::fp32 ? 3 : 5, 5, 7, 2, 3, 12,
                                7 + kPadding};
    bytes.assign(reinterpret_cast<const char*>(header), sizeof header);
    add("transformer.wte.weight", c.vocabulary * c.width);
    add("", kPadding * c.width);
    add("transformer.wpe.weight", c.max_positions * c.width);
    const auto D = c.width;
    each_layer("ln_1.weight", D);
    each_layer("ln_1.bias", D);
    each_qkv(".weight", D * D);
    each_qkv(".bias", D);
    each_layer("attn.c_proj.weight", D * D);
    each_layer("attn.c_proj.bias", D);
    each_layer("ln_2.weight", D);
    each_layer("ln_2.bias", D);
    each_layer("mlp.c_fc.weight", 4 * D * D);
    each_layer("mlp.c_fc.bias", 4 * D);
    each_layer("mlp.c_proj.weight", 4 * D * D);
    each_layer("mlp.c_proj.bias", D);
    add("transformer.ln_f.weight", D);
    add("transformer.ln_f.bias", D);
  }

  void add(const std::string& name, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = to_float(to_bf16(uniform_open(philox(9, 0, drawn++)[0])));
      if (!name.empty()) values[name].push_back(value);
      const auto half = to_bf16(value);
      if (dtype == DType::fp32)
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
      else
        bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
  }
  void each_layer(const std::string& name, std::int64_t count) {
    for (int layer = 0; layer < 2; ++layer)
      add(str("transformer.h.", layer, ".", name), count);
  }
  void each_qkv(const std::string& suffix, std::int64_t count) {
    for (int layer = 0; layer < 2; ++layer)
      for (const char* part : {"q", "k", "v"})
        add(str("transformer.h.", layer, ".attn.c_attn.", part, suffix), count);
  }
  Written& with(std::size_t entry, std::int32_t value) {
    std::memcpy(bytes.data() + 4 * entry, &value, 4);
    return *this;
  }
};

class Llmc : public ::testing::TestWithParam<DType> {
 protected:
  std::string refusal(const std::string& bytes) {
    spit(directory_ / "m.bin", bytes);
    return message_of<DataError>([&] { llmc_config(directory_ / "m.bin"); });
  }
  TemporaryDirectory directory_;
};

TEST_P(Llmc, every_parameter_gets_its_numbers_and_padding_is_left_out) {
  const Written written(GetParam());
  spit(directory_ / "m.bin", written.bytes);
  EXPECT_TRUE(is_llmc_model(directory_ / "m.bin"));
  EXPECT_EQ(llmc_config(directory_ / "m.bin"), small());
  for (const auto dtype : {DType::fp32, DType::bf16}) {
    ModelWeights weights(small(), dtype);
    import_llmc(directory_ / "m.bin", weights.slices);
    EXPECT_EQ(weights.values(), written.values);
    ModelWeights pieces(small(), dtype);
    import_llmc(directory_ / "m.bin", pieces.halves());
    EXPECT_EQ(pieces.values(), written.values);
    ModelWeights whole(small(), dtype);
    const auto columns = whole.columns();
    import_llmc(directory_ / "m.bin", columns);
    whole.put_together(columns);
    EXPECT_EQ(whole.values(), written.values);
  }
}

TEST_P(Llmc, every_truncation_and_an_extension_are_refused) {
  const Written written(GetParam());
  for (std::size_t n = 0; n < written.bytes.size(); n += n < 1030 ? 1 : 997)
    expect_contains(refusal(written.bytes.substr(0, n)), "m.bin: at byte ");
  expect_contains(refusal(written.bytes + "x"), "the header makes a file of");
}

INSTANTIATE_TEST_SUITE_P(types, Llmc, kFloatTypes, dtype_name);

TEST_F(Llmc, headers_that_make_no_model_are_refused) {
  const auto with = [&](std::size_t entry, std::int32_t value) {
    return refusal(Written(DType::fp32).with(entry, value).bytes);
  };
  expect_contains(with(0, 20240520), "expected the number 20240326 of an llm.c model");
  EXPECT_FALSE(is_llmc_model(directory_ / "m.bin"));
  EXPECT_FALSE(is_llmc_model(directory_.path()));
  EXPECT_FALSE(is_llmc_model(directory_ / "absent"));
  expect_contains(with(1, 4), "at byte 4: version 4, supported are 3 (fp32) and 5 (bf16)");
  expect_contains(with(2, 0), "at byte 8: the greatest length is 0");
  expect_contains(with(4, -1), "at byte 16: the number of layers is -1");
  expect_contains(with(5, 5), "at byte 20: 5 heads do not divide the width 12");
  expect_contains(with(6, INT32_MAX), "at byte 24: the width is 2147483647");
  expect_contains(with(7, 6), "at byte 28: a vocabulary of 7 padded to 6");
  expect_contains(with(4, 4096), "the header makes a file of");
  EXPECT_EQ(with(4, 4096).find("e+"), std::string::npos) << "bytes are counted";
  const auto bytes = Written(DType::fp32).bytes;
  expect_contains(refusal(bytes + "x"), str("the header makes a file of ", bytes.size(),
                                            " bytes, it has ", bytes.size() + 1));
}

}  // namespace lockstep::testing::llmc_test
