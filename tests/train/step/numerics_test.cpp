// The record of libraries and matmul algorithms that a run on a GPU keeps.
#include "train/step/numerics.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/system/machine.h"
#include "tests/support/thread_world.h"
#include "tests/wording.h"

namespace lockstep::testing::numerics_test {

const NumericsRecord kRecord{
    .device = "NVIDIA H200",
    .driver = "580.65.06",
    .nccl = "2.28.9 NCCL_ALGO=Ring",
    .products = {.cublaslt = 130002, .algorithms = {{"2 x 3 x 4", "00ff"}, {"b", "01"}}}};

TEST(Numerics, a_record_reads_back_from_a_file) {
  const TemporaryDirectory temporary;
  Json json;
  add_to(json, kRecord);
  write_text(temporary / "numerics.json", json.dump(2));
  const auto back = numerics_in(read_numerics(temporary / "numerics.json"));
  EXPECT_EQ(back.device, kRecord.device);
  EXPECT_EQ(back.driver, kRecord.driver);
  EXPECT_EQ(back.nccl, kRecord.nccl);
  EXPECT_EQ(back.products.cublaslt, kRecord.products.cublaslt);
  EXPECT_EQ(back.products.algorithms, kRecord.products.algorithms);
}

TEST(Numerics, a_record_of_one_rank_does_not_name_nccl) {
  auto alone = kRecord;
  alone.nccl = "";
  Json json;
  add_to(json, alone);
  EXPECT_EQ(json.find("nccl"), nullptr);
  EXPECT_EQ(numerics_in(json).nccl, "");
}

TEST(Numerics, ranks_with_different_records_are_rejected_by_name) {
  // The error on rank 2 if rank 1 differs from the others; "": none.
  const auto said = [&](const NumericsRecord& of_rank_1, const std::string& attention) {
    std::string text;
    run_thread_ranks(3, [&](World& world) {
      const bool odd = world.rank() == 1;
      const auto fields = fields_of(odd ? of_rank_1 : kRecord, odd ? attention : "cuDNN 9.19.0");
      try {
        agree(world, "numerics", fields);
      } catch (const ConfigError& error) {
        if (world.rank() == 2) text = error.what();
      }
    });
    return text;
  };
  const std::string ours = "cuDNN 9.19.0";
  EXPECT_EQ(said(kRecord, ours), "");
  const auto host = str("(host ", host_name(), ")");
  const auto expect_said = [&](const std::string& value, std::string text) {
    for (const auto& pin : {value, str("rank 1 ", host)})
      expect_contains(text, pin);
    for (auto at = text.find(host); at != std::string::npos; at = text.find(host))
      text.replace(at, host.size(), "(HOST)");
    expect_wording("train/numerics", str("rank 1 has ", value), text);
  };
  auto odd = kRecord;
  odd.device = "NVIDIA H100";
  expect_said(odd.device, said(odd, ours));
  odd = kRecord;
  odd.driver = "570.1";
  expect_said(odd.driver, said(odd, ours));
  odd = kRecord;
  odd.nccl = "2.27.3";
  expect_said(odd.nccl, said(odd, ours));
  odd = kRecord;
  odd.products.cublaslt = 130100;
  expect_said("130100", said(odd, ours));
  expect_said("own kernels", said(kRecord, "own kernels"));
}

TEST(Numerics, an_invalid_record_is_rejected_by_member) {
  const std::pair<const char*, const char*> records[] = {
      {R"({"driver": "13.0", "cublaslt": 1, "products": {}})", "device"},
      {R"({"device": "a", "driver": 13, "cublaslt": 1, "products": {}})", "driver"},
      {R"({"device": "a", "driver": "b", "cublaslt": 0, "products": {}})", "cublaslt"},
      {R"({"device": "a", "driver": "b", "cublaslt": 1, "products": []})", "products: "},
      {R"({"device": "a", "driver": "b", "cublaslt": 1, "products": {"p": 1}})", "products: "}};
  for (const auto& [text, pin] : records)
    expect_refusal<DataError>("train/numerics", text, {pin},
                              [&, text = text] { numerics_in(Json::parse(text, "text")); });
  const TemporaryDirectory temporary;
  write_text(temporary / "numerics.json", "{");
  expect_refusal<DataError>("train/numerics", "{", {"at byte 1: "},
                            [&] { read_numerics(temporary / "numerics.json"); });
}

}  // namespace lockstep::testing::numerics_test
