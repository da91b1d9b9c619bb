#include "train/interop/llmc.h"

#include <cstring>

#include "tests/train/model_weights.h"
#include "tests/train/training_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::llmc_test {

namespace fs = std::filesystem;

constexpr int kPadding = 3;  // rows after the vocabulary

ModelConfig small() {
  auto c = small_model(Family::gpt2, 12, 3);
  c.mlp_width = 48;
  c.vocabulary = 7;
  c.max_positions = 5;
  return c;
}

// A file as llm.c writes it: blocks of random numbers, also kept by parameter name.
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
  void write(const std::string& bytes) const { spit(path_, bytes); }
  TemporaryDirectory directory_;
  const fs::path path_ = directory_ / "m.bin";
};

TEST_P(Llmc, every_parameter_is_filled_and_padding_is_skipped) {
  const Written written(GetParam());
  write(written.bytes);
  EXPECT_TRUE(is_llmc_model(path_));
  EXPECT_EQ(llmc_config(path_), small());
  for (const auto dtype : {DType::fp32, DType::bf16}) {
    ModelWeights weights(small(), dtype);
    import_llmc(path_, weights.slices);
    EXPECT_EQ(weights.values(), written.values);
    ModelWeights pieces(small(), dtype);
    import_llmc(path_, pieces.halves());
    EXPECT_EQ(pieces.values(), written.values);
    ModelWeights whole(small(), dtype);
    const auto columns = whole.columns();
    import_llmc(path_, columns);
    whole.put_together(columns);
    EXPECT_EQ(whole.values(), written.values);
  }
}

TEST_P(Llmc, every_truncation_and_an_extension_are_errors) {
  const Written written(GetParam());
  for (std::size_t n = 0; n < written.bytes.size(); n += n < 1030 ? 1 : 997) {
    write(written.bytes.substr(0, n));
    expect_contains(message_of<DataError>([&] { llmc_config(path_); }), "m.bin: at byte ");
  }
  const auto size = written.bytes.size();
  write(written.bytes + "x");
  expect_refusal<DataError>("train/llmc", str("one byte more of ", name(GetParam())),
                            {"m.bin: at byte ", str(size, " "), str(size + 1)},
                            [&] { llmc_config(path_); });
}

INSTANTIATE_TEST_SUITE_P(types, Llmc, kFloatTypes, dtype_name);

TEST_F(Llmc, headers_of_impossible_models_are_errors) {
  struct Row {
    std::size_t entry;
    std::int32_t value;
    const char* pin;
  };
  const Row rows[] = {{0, 20240520, "20240326"}, {1, 4, "at byte 4: "},
                      {2, 0, "at byte 8: "},     {4, -1, "at byte 16: "},
                      {5, 5, "at byte 20: "},    {6, INT32_MAX, "at byte 24: "},
                      {7, 6, "at byte 28: "},    {4, 4096, "m.bin: "}};
  for (const auto& [entry, value, pin] : rows) {
    write(Written(DType::fp32).with(entry, value).bytes);
    EXPECT_EQ(is_llmc_model(path_), entry != 0);
    expect_refusal<DataError>("train/llmc", str("entry ", entry, " is ", value), {pin},
                              [&] { llmc_config(path_); });
  }
  EXPECT_FALSE(is_llmc_model(directory_.path()));
  EXPECT_FALSE(is_llmc_model(directory_ / "absent"));
}

}  // namespace lockstep::testing::llmc_test
