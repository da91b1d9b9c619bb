#include "train/step/memory.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <regex>

#include "tests/train/training_rig.h"
#include "tests/wording.h"
#include "train/run/memory_budget.h"
#include "train/run/run_config.h"
#include "train/step/inference.h"

namespace lockstep::testing::memory_test {

constexpr const char* kReader = "train/memory";

const MemoryRoom kRoom{.device = {}, .host_bytes = std::int64_t{16} << 30};

TEST(Memory, the_peak_includes_freed_memory) {
  constexpr std::size_t kBytes = 512 << 20;  // more than anything else here has used
  const auto before = used_memory_bytes(Device{});
  void* memory = std::malloc(kBytes);
  std::memset(memory, 1, kBytes);
  volatile char used = static_cast<char*>(memory)[kBytes / 2];
  EXPECT_EQ(used, 1);
  std::free(memory);
  EXPECT_GT(before, 1 << 20);
  EXPECT_GE(used_memory_bytes(Device{}), static_cast<std::int64_t>(kBytes));
}

TEST(Memory, available_memory_is_at_most_that_of_the_host) {
  EXPECT_GT(available_memory_bytes(Device{}), 0);
  EXPECT_LE(available_memory_bytes(Device{}), all_memory_bytes(Device{}));
  EXPECT_LE(all_memory_bytes(Device{}),
            static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
}

TEST(Memory, too_large_a_need_is_rejected_with_both_sizes_and_a_remedy) {
  room_here(Device{}).require({.device = 1}, "nothing");
  EXPECT_THROW(room_here(Device{}).require({.device = std::int64_t{1} << 50}, "nothing"),
               ConfigError);
  expect_refusal<ConfigError>(
      kReader, "a host", {"1024 TiB", "16.0 GiB", "buy a smaller model"},
      [] { kRoom.require({.device = std::int64_t{1} << 50}, "buy a smaller model"); });
}

// Compares the message without its sizes, which depend on the build.
template <class Act>
void expect_no_room(const char* what, std::initializer_list<std::string> keys, const Act& act) {
  const auto text = message_of<ConfigError>(act);
  for (const auto& key : keys)
    expect_contains(text, key);
  static const std::regex size("[0-9.]+ [KMGT]i?B");
  expect_wording(kReader, what, std::regex_replace(text, size, "SIZE"));
}

// Checks memory as a run does before it allocates.
RunBytes checked(const Config& config) {
  const auto bytes = run_bytes(config, kRoom);
  require_room(config, bytes, kRoom);
  return bytes;
}

Config config_of(Family family, int layers, int width) {
  Config config;
  auto& m = config.model;
  m = small_model(family, width, width / 64);
  m.layers = layers;
  m.mlp_width = 4 * width;
  m.vocabulary = 50257;
  m.max_positions = 1024;
  config.train.sequence_length = 1024;
  config.train.threads = 2;
  return config;
}

Config sharded(std::int64_t ranks) {
  Config config = config_of(Family::llama3, 48, 512);
  config.model.vocabulary = 256;
  config.layout.ranks = config.layout.shard = ranks;
  config.train.sequence_length = 32;
  config.train.micro_batch = 1;
  config.train.batch_tokens = 2 * ranks * config.train.sequence_length;
  return config;
}

Keepable kept(const Config& config, const MemoryRoom& room = kRoom) {
  return keepable_blocks(config, room, HostStaging::Copies::none);
}

TEST(Memory, as_many_blocks_could_stay_gathered_as_fit) {
  Config config = sharded(64);
  const auto least = checked(config).sum().device;
  const auto all = kept(config);
  EXPECT_EQ(all.blocks, 48);
  EXPECT_LT(all.gathered_bytes, 0.3 * static_cast<double>(all.gathered_bytes_before));
  ASSERT_GT(all.bytes.device, 4 * least);
  const auto some = kept(config, {.device = {}, .host_bytes = (least + all.bytes.device) / 2});
  EXPECT_GT(some.blocks, 0);
  EXPECT_LT(some.blocks, 48);
  EXPECT_LT(some.bytes.device, all.bytes.device);
  EXPECT_GT(some.bytes.device, least);
  config.layout.keep_gathered = all.blocks;
  EXPECT_EQ(checked(config).sum().device, all.bytes.device);
  EXPECT_EQ(kept(config).blocks, 0) << "there are no more";
}

TEST(Memory, blocks_that_are_never_gathered_cannot_stay_gathered) {
  Config config = sharded(64);
  config.layout.sharding = Sharding::optimizer;
  EXPECT_EQ(kept(config).blocks, 0);
  EXPECT_EQ(kept(sharded(1)).blocks, 0);
}

// Replicated elements are divided among their ranks: together the ranks copy each element once.
TEST(Memory, each_rank_is_measured_with_its_own_part_of_the_checkpoint) {
  Config config = sharded(4);
  config.layout.shard = 1;
  config.layout.replicate = config.layout.tensor = 2;
  const auto copies = [&](int rank) {
    const auto bytes = run_bytes(config, kRoom, /*may_copy=*/true, rank);
    EXPECT_EQ(bytes.copies, HostStaging::Copies::owned);
    return bytes.host_staging;
  };
  std::int64_t sum = 0;
  for (int rank = 0; rank < 4; ++rank)
    sum += copies(rank);
  EXPECT_NE(copies(0), copies(2));
  EXPECT_GE(sum, checkpoint_bytes(config));
  EXPECT_LT(sum, checkpoint_bytes(config) + 4096);
  const auto training = training_config(config);
  EXPECT_GT(measure_training(training, Device{}, 1, 3).device, 0);
  EXPECT_THROW(measure_training(training, Device{}, 1, 4), Error);
}

TEST(Memory, inference_is_measured_on_the_given_rank) {
  const Stream stream(Device{}, "test");
  const Mesh mesh{.shard = 2, .tensor = 2};
  for (const int rank : {0, 3}) {
    std::optional<int> measured;
    measure_inference({.model = sharded(4).model}, mesh, rank, stream, [&](Inference& model) {
      measured = mesh.coordinate(Axis::shard, model.comms().world->rank());
    });
    EXPECT_EQ(measured, rank / 2);
  }
}

// The GPU is not present; its host has little memory.
TEST(Memory, the_remedy_offloads_less_if_host_memory_is_short) {
  Config config = sharded(8);
  config.precision.compute = DType::bf16;
  config.train.recompute = Recompute::block;
  MemoryRoom room{.device = Device{Device::Kind::cuda}, .ranks = 8, .gpu = "a GPU"};
  const auto needs = [&] { return run_bytes(config, room, /*may_copy=*/false).sum(); };
  const auto expect_remedy = [&](const char* what, std::initializer_list<std::string> keys) {
    const auto bytes = run_bytes(config, room, /*may_copy=*/false);
    expect_no_room(what, keys, [&] { require_room(config, bytes, room); });
  };
  const auto none = needs();
  config.train.offload_activations = true;
  const auto activations = needs();
  config.train.offload_optimizer = true;
  ASSERT_GT(needs().pinned, activations.pinned);
  ASSERT_GT(activations.pinned, none.pinned);
  room.host_bytes = 8 * activations.pinned;
  expect_remedy("without the optimizer on the host", {"train.offload_optimizer = false"});
  room.host_bytes = 8 * none.pinned;
  expect_remedy("with nothing on the host",
                {"train.offload_activations = false", "train.offload_optimizer = false"});
  room.host_bytes = 0;
  expect_remedy("no host memory", {"0"});
}

// A micro-batch of 4096 sequences does not fit. The error names a smaller one that fits; twice its
// size does not fit.
TEST(TooLarge, the_error_names_settings_that_fit) {
  Config config = config_of(Family::gpt2, 12, 768);
  config.train.micro_batch = 1 << 12;
  config.train.batch_tokens = config.train.micro_batch * 1024;
  const auto message = message_of<ConfigError>([&] { checked(config); });
  const std::string before = "train.micro_batch = ";
  const auto at = message.find(before);
  ASSERT_NE(at, std::string::npos) << message;
  EXPECT_EQ(message.find("train.recompute"), std::string::npos)
      << "that is so already: " << message;
  config.train.micro_batch = std::stoll(message.substr(at + before.size()));
  checked(config);
  config.train.micro_batch *= 2;
  EXPECT_THROW(checked(config), ConfigError);
}

Config too_large(std::int64_t sequence_length) {
  Config config = config_of(Family::llama3, 100, 16384);
  config.train.sequence_length = sequence_length;
  config.train.micro_batch = 2;
  config.train.batch_tokens = 2 * sequence_length;
  return config;
}

// One sequence of 24 tokens is not proposed, because it could not have fp8 matmuls.
TEST(TooLarge, proposed_sizes_in_fp8_are_multiples_of_16_tokens) {
  Config config = too_large(24);
  config.precision.compute = DType::bf16;
  config.precision.fp8 = Fp8Matmuls::tensor;
  expect_no_room("too large in fp8", {}, [&] { checked(config); });
}

TEST(TooLarge, a_model_that_never_fits_is_reported_as_too_large) {
  Config config = too_large(1024);
  config.layout.keep_gathered = 1;
  expect_no_room("too large", {"train.recompute = \"block\"", "layout.keep_gathered = 0"},
                 [&] { checked(config); });
}

}  // namespace lockstep::testing::memory_test
