// What a run on a GPU keeps of how it computes.
#include "train/numerics.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/machine.h"
#include "dist/thread_world.h"
#include "tests/files.h"

namespace lockstep::testing::numerics_test {

TEST(Numerics, record_comes_back_from_a_file) {
  const TemporaryDirectory temporary;
  const NumericsRecord record{
      .device = "NVIDIA H200",
      .driver = "13.0",
      .nccl = "2.28.9 NCCL_ALGO=Ring",
      .products = {.cublaslt = 130002, .algorithms = {{"2 x 3 x 4", "00ff"}, {"b", "01"}}}};
  Json json;
  add_to(json, record);
  write_text(temporary / "numerics.json", json.dump(2));
  const auto back = numerics_in(read_numerics(temporary / "numerics.json"));
  EXPECT_EQ(back.device, record.device);
  EXPECT_EQ(back.driver, record.driver);
  EXPECT_EQ(back.nccl, record.nccl);
  EXPECT_EQ(back.products.cublaslt, record.products.cublaslt);
  EXPECT_EQ(back.products.algorithms, record.products.algorithms);
}

TEST(Numerics, a_record_of_one_rank_does_not_name_nccl) {
  Json json;
  add_to(json,
         {.device = "a", .driver = "b", .nccl = "", .products = {.cublaslt = 1, .algorithms = {}}});
  EXPECT_EQ(json.find("nccl"), nullptr);
  EXPECT_EQ(numerics_in(json).nccl, "");
}

TEST(Numerics, ranks_that_would_compute_other_bits_are_refused_by_name) {
  const NumericsRecord usual{.device = "NVIDIA H200",
                             .driver = "580.65.06",
                             .nccl = "2.28.9",
                             .products = {.cublaslt = 130002, .algorithms = {}}};
  const auto said = [&](const NumericsRecord& of_rank_1, const std::string& attention) {
    std::string text;
    run_thread_ranks(3, [&](World& world) {
      const bool odd = world.rank() == 1;
      const auto fields = fields_of(odd ? of_rank_1 : usual, odd ? attention : "cuDNN 9.19.0");
      try {
        agree(world, "numerics", fields);
      } catch (const ConfigError& error) {
        if (world.rank() == 2) text = error.what();
      }
    });
    return text;
  };
  const auto on_rank_1 = str(" on rank 1 (host ", host_name(), "), ");
  const std::string ours = "cuDNN 9.19.0";
  EXPECT_EQ(said(usual, ours), "");
  auto odd = usual;
  odd.device = "NVIDIA H100";
  expect_contains(said(odd, ours),
                  "their numerics: GPU is NVIDIA H100" + on_rank_1 + "NVIDIA H200");
  odd = usual;
  odd.driver = "570.1";
  expect_contains(said(odd, ours), "GPU driver is 570.1" + on_rank_1);
  odd = usual;
  odd.nccl = "2.27.3";
  expect_contains(said(odd, ours), "NCCL is 2.27.3" + on_rank_1);
  odd = usual;
  odd.products.cublaslt = 130100;
  expect_contains(said(odd, ours), "cuBLASLt is 130100" + on_rank_1);
  expect_contains(said(usual, "own kernels"), "attention is own kernels" + on_rank_1);
}

TEST(Numerics, what_is_no_record_is_refused_by_name) {
  const auto message = [](const char* text) {
    return message_of<DataError>([&] { numerics_in(Json::parse(text, "text")); });
  };
  expect_contains(message(R"({"driver": "13.0", "cublaslt": 1, "products": {}})"), "device");
  expect_contains(message(R"({"device": "a", "driver": 13, "cublaslt": 1, "products": {}})"),
                  "driver");
  expect_contains(message(R"({"device": "a", "driver": "b", "cublaslt": 0, "products": {}})"),
                  "cublaslt");
  expect_contains(message(R"({"device": "a", "driver": "b", "cublaslt": 1, "products": []})"),
                  "products: ");
  expect_contains(message(R"({"device": "a", "driver": "b", "cublaslt": 1, "products": {"p": 1}})"),
                  "products: ");
  const TemporaryDirectory temporary;
  write_text(temporary / "numerics.json", "{");
  expect_contains(message_of<DataError>([&] { read_numerics(temporary / "numerics.json"); }),
                  "not JSON: ");
}

}  // namespace lockstep::testing::numerics_test
