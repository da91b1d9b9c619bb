#include "checkpoint/checkpointer.h"

#include <cstring>

#include "checkpoint/safetensors.h"
#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::checkpointer_test {

namespace fs = std::filesystem;
// A small state of several types: weights, moments, and random bits (NaN among them).
class CheckpointerTest : public ::testing::Test {
 protected:
  CheckpointerTest() {
    const std::vector<std::pair<std::string, DType>> names = {{"embed.weight", DType::bf16},
                                                              {"embed.weight/adam_m", DType::fp32},
                                                              {"norm.weight", DType::fp32},
                                                              {"flags", DType::uint8}};
    for (const auto& [name, dtype] : names)
      state_.push_back(whole_slice(name, bench_.poisoned({7, 13}, dtype)));
    fill(1);
  }

  void fill(std::uint64_t seed) {
    for (const auto& slice : state_)
      for (std::int64_t i = 0; i < slice.local.bytes(); ++i)
        slice.local.data[i] = static_cast<std::byte>(
            philox(seed, purpose_of(slice.name), static_cast<std::uint64_t>(i))[0]);
  }
  // True if the state equals the one that fill(seed) made.
  bool holds(std::uint64_t seed) {
    std::vector<Tensor> kept;
    for (const auto& slice : state_)
      kept.push_back(bench_.copy(slice.local));
    fill(seed);
    bool same = true;
    for (std::size_t i = 0; i < kept.size(); ++i)
      same &= std::memcmp(kept[i].data, state_[i].local.data,
                          static_cast<std::size_t>(kept[i].bytes())) == 0;
    for (std::size_t i = 0; i < kept.size(); ++i)
      std::copy(kept[i].data, kept[i].data + kept[i].bytes(), state_[i].local.data);
    return same;
  }
  void save(std::int64_t step, Retention retention = {},
            std::optional<double> validation_loss = std::nullopt) {
    fill(static_cast<std::uint64_t>(step));
    Json about;
    about.set("step", step);
    if (validation_loss) about.set("validation_loss", *validation_loss);
    Checkpointer(path(), state_, std::move(retention)).save(step, about);
  }
  void save_all(std::initializer_list<std::int64_t> steps) {
    for (const auto step : steps)
      save(step);
  }
  // Changes its last byte.
  void damage(std::int64_t step) const {
    flip(path(step) / "rank-00000.safetensors",
         fs::file_size(path(step) / "rank-00000.safetensors") - 1, 0);
  }
  fs::path path() const { return directory_.path() / "checkpoints"; }
  fs::path path(std::int64_t step) const { return checkpoint_path(path(), step); }
  static std::vector<std::string> entries(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  TemporaryDirectory directory_;
  Bench bench_;
  std::vector<StateSlice> state_;
};

constexpr char kRankFile[] = "rank-00000.safetensors";

TEST_F(CheckpointerTest, a_loaded_state_equals_the_saved_one_bit_for_bit) {
  save(5);
  fill(6);
  const Checkpointer checkpointer(path(), state_);
  EXPECT_EQ(latest_checkpoint(path()), 5);
  EXPECT_EQ(checkpointer.load(5).dump(), R"({"step":5})");
  EXPECT_TRUE(holds(5));
  EXPECT_EQ(entries(path()), (std::vector<std::string>{"step-00000005"}));
  EXPECT_EQ(entries(path(5)), (std::vector<std::string>{"manifest.json", kRankFile}));
}

TEST_F(CheckpointerTest, a_rank_file_is_a_safetensors_file_with_aligned_tensors) {
  save(5);
  const SafetensorsFile file(path(5) / kRankFile);
  for (const auto& slice : state_) {
    const auto* stored = file.find(slice.name);
    ASSERT_NE(stored, nullptr) << slice.name;
    EXPECT_EQ(stored->shape, (std::vector<std::int64_t>{7, 13}));
    EXPECT_EQ(stored->offset % bytes_per_element(stored->type), 0) << slice.name;
    Tensor read = bench_.poisoned({7, 13}, slice.local.dtype);
    file.read(*stored, 0, read);
    expect_bitwise_equal(read, slice.local, slice.name);
  }
}

TEST_F(CheckpointerTest, the_same_state_gives_the_same_bytes) {
  save(5);
  const std::string manifest = slurp(path(5) / "manifest.json"), data = slurp(path(5) / kRankFile);
  fs::remove_all(path());
  save(5);
  EXPECT_EQ(slurp(path(5) / "manifest.json"), manifest);
  EXPECT_EQ(slurp(path(5) / kRankFile), data);
}

TEST_F(CheckpointerTest, the_newest_has_the_largest_number_and_the_name_of_its_step) {
  EXPECT_EQ(latest_checkpoint(path()), std::nullopt);
  save_all({9, 10, 123456789});
  for (const char* name : {"step-", "step-1", "step-000000011", "step-00000012x", "step-99999999"})
    fs::create_directory(path() / name);
  spit(path() / "step-99999998", "a file");
  EXPECT_EQ(checkpoint_steps(path()),
            (std::vector<std::int64_t>{9, 10, 99999998, 99999999, 123456789}));
  fs::remove_all(path(123456789));
  EXPECT_EQ(latest_checkpoint(path()), 10);
}

TEST_F(CheckpointerTest, leftovers_of_an_interrupted_save_are_ignored_and_removed) {
  save(1);
  save(2);
  fs::rename(path(2), path(2).string() + ".tmp");
  fs::create_directory(path() / "step-00000007.tmp");  // an interrupted deletion
  EXPECT_EQ(latest_checkpoint(path()), 1);
  save(2);
  EXPECT_EQ(entries(path()), (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

TEST_F(CheckpointerTest, saving_a_step_again_renames_the_existing_checkpoint) {
  save(1);
  save(2);
  const std::string before = slurp(path(2) / kRankFile);
  fill(77);
  Checkpointer(path(), state_).save(2, Json());
  Checkpointer(path(), state_).save(2, Json());
  EXPECT_EQ(entries(path()),
            (std::vector<std::string>{"step-00000001", "step-00000002", "step-00000002.replaced-1",
                                      "step-00000002.replaced-2"}));
  EXPECT_EQ(slurp(path() / "step-00000002.replaced-1" / kRankFile), before);
  verify_checkpoint(path() / "step-00000002.replaced-1", Depth::contents);
  fs::resize_file(path(2) / kRankFile, before.size() - 1);
  save(2);
  EXPECT_TRUE(fs::exists(path() / "step-00000002.damaged-1"));
  Checkpointer(path(), state_).load(2);
  EXPECT_TRUE(holds(2));
}

TEST_F(CheckpointerTest, a_run_resumed_from_an_old_step_ignores_later_checkpoints) {
  save_all({1, 2, 3, 4});
  save(2);
  EXPECT_EQ(latest_checkpoint(path()), 2);
  EXPECT_EQ(entries(path()),
            (std::vector<std::string>{"step-00000001", "step-00000002", "step-00000002.replaced-1",
                                      "step-00000003.replaced-1", "step-00000004.replaced-1"}));
}

TEST_F(CheckpointerTest, only_the_newest_checkpoints_stay) {
  for (std::int64_t step = 1; step <= 5; ++step)
    save(step, {.last = 2});
  EXPECT_EQ(entries(path()), (std::vector<std::string>{"step-00000004", "step-00000005"}));
}

TEST_F(CheckpointerTest, a_step_in_keep_stays) {
  for (std::int64_t step = 1; step <= 5; ++step) {
    fill(static_cast<std::uint64_t>(step));
    Checkpointer(path(), state_, {.last = 1}).save(step, Json(), {2});
  }
  EXPECT_EQ(entries(path()), (std::vector<std::string>{"step-00000002", "step-00000005"}));
}

// The step is elsewhere, and the one before it was copied here.
TEST_F(CheckpointerTest, if_a_step_in_keep_does_not_exist_the_one_before_it_stays) {
  save_all({1, 2, 4, 5});
  EXPECT_EQ(prune_checkpoints(path(), {.last = 1}, {3}), (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{2, 5}));
}

TEST_F(CheckpointerTest, the_newest_valid_and_accepted_checkpoint_is_loaded) {
  const Checkpointer checkpointer(path(), state_);
  const auto any = [](const Json&) {};
  EXPECT_EQ(checkpointer.load_newest(any), std::nullopt);
  save_all({1, 2, 3});
  damage(3);
  EXPECT_EQ(checkpointer.load_newest(any)->dump(), R"({"step":2})");
  EXPECT_TRUE(holds(2));
  const auto refuse = [](const Json& about) { throw ConfigError("not " + about.dump()); };
  expect_contains(message_of<ConfigError>([&] { checkpointer.load_newest(refuse); }),
                  R"(not {"step":3})");
  fs::remove(path(3) / kRankFile);
  expect_refusal<ConfigError>("checkpoint/checkpointer", "refused, after a damaged one",
                              {R"({"step":2})", "/step-00000003/"},
                              [&] { checkpointer.load_newest(refuse); });
}

TEST_F(CheckpointerTest, if_no_checkpoint_is_valid_loading_fails) {
  save_all({1, 2});
  damage(1);
  fs::remove(path(2) / kRankFile);
  expect_refusal<DataError>(
      "checkpoint/checkpointer", "none is whole",
      {"step-00000001/rank-00000.safetensors: at byte", "step-00000002/rank-00000.safetensors: "},
      [&] { Checkpointer(path(), state_).load_newest([](const Json&) {}); });
}

// A link to itself cannot be opened by any user.
TEST_F(CheckpointerTest, a_checkpoint_that_cannot_be_opened_is_not_treated_as_damaged) {
  save_all({1, 2});
  fs::remove(path(2) / kRankFile);
  fs::create_symlink(kRankFile, path(2) / kRankFile);
  EXPECT_THROW(Checkpointer(path(), state_).load_newest([](const Json&) {}), AccessError);
  EXPECT_THROW(latest_checkpoint(path()), AccessError);
  spit(directory_ / "file", "text");
  EXPECT_THROW(checkpoint_steps(directory_ / "file"), AccessError);
}

// A temporary storage failure loses no steps: no older checkpoint is loaded.
TEST_F(CheckpointerTest, an_unreadable_step_is_loaded_from_another_copy_or_is_an_error) {
  save_all({1, 2});
  using Candidate = Checkpointer::Candidate;
  const Checkpointer checkpointer(path(), state_);
  const Candidate fails{.step = 2, .load = [](auto) -> Json {
                          throw StorageError("elsewhere/step-2: Input/output error");
                        }};
  const auto here = checkpointer.candidates();
  const auto load = [&](const std::vector<Candidate>& candidates) {
    return checkpointer.load_first(candidates, [](const Json&) {});
  };
  EXPECT_TRUE(load({fails, here[0], here[1]}));
  EXPECT_TRUE(holds(2));
  expect_refusal<StorageError>("checkpoint/checkpointer", "storage that fails",
                               {"step 2", "elsewhere/step-2: "}, [&] {
                                 load({fails, here[1]});
                               });
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(CheckpointerTest, a_directory_removed_between_saves_is_not_recreated) {
  Checkpointer checkpointer(path(), state_);
  checkpointer.save(1, Json());
  fs::remove_all(path());
  expect_refusal<DataError>("checkpoint/checkpointer", "a directory that was removed",
                            {"step-00000002.tmp: "}, [&] { checkpointer.save(2, Json()); });
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(CheckpointerTest, older_checkpoints_at_the_interval_and_the_best_stay) {
  const Retention retention{.last = 2, .every = 40, .best = 2};
  const std::vector<std::optional<double>> losses{5, 3, std::nullopt, 2.5, 2.75, 4, 2, 3.5, 6};
  for (std::int64_t i = 0; i < std::ssize(losses); ++i)
    save(10 * (i + 1), retention, losses[static_cast<std::size_t>(i)]);
  // 40 and 70 are the best, 40 and 80 multiples, 80 and 90 the newest.
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{40, 70, 80, 90}));
  prune_checkpoints(path(), {.last = 1, .best = 1});
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{70, 90}));
}

TEST_F(CheckpointerTest, the_newer_of_equally_good_checkpoints_stays) {
  for (const std::int64_t step : {1, 2, 3})
    save(step, {.last = 1, .best = 1}, step < 3 ? 2.0 : 5.0);
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(CheckpointerTest, nothing_is_deleted_while_the_newest_is_damaged) {
  save_all({1, 2, 3});
  damage(3);
  EXPECT_THROW(prune_checkpoints(path(), {.last = 1}), DataError);
  EXPECT_EQ(checkpoint_steps(path()).size(), 3u);
  // A checkpoint that is visibly damaged does not count and is not deleted.
  fs::remove(path(3) / kRankFile);
  prune_checkpoints(path(), {.last = 1});
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(CheckpointerTest, a_full_disk_keeps_older_checkpoints) {
  const SmallDisk disk(std::int64_t{512} << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  state_.push_back(whole_slice("large", bench_.random({20000}, DType::fp32)));
  std::int64_t step = 0;
  int exit_code = 0;
  for (; exit_code == 0 && step < 10; ++step)
    try {
      fill(static_cast<std::uint64_t>(step));
      Checkpointer(disk.path(), state_).save(step, Json());
    } catch (const Error& error) {
      exit_code = error.exit_code();
    }
  EXPECT_EQ(exit_code, 74);
  const auto latest = latest_checkpoint(disk.path());
  EXPECT_EQ(latest, step - 2);
  EXPECT_EQ(std::ssize(entries(disk.path())), step - 1);  // no leftovers
  Checkpointer(disk.path(), state_).load(*latest);
  EXPECT_TRUE(holds(static_cast<std::uint64_t>(*latest)));
}

TEST_F(CheckpointerTest, different_tensors_are_rejected_by_name) {
  save(1);
  const auto expect_refused = [&](const char* name, std::initializer_list<std::string> pins,
                                  const auto& change) {
    auto state = state_;
    change(state);
    expect_refusal<DataError>("checkpoint/checkpointer", name, pins,
                              [&] { Checkpointer(path(), state).load(1); });
  };
  expect_refused("a tensor more", {"step-00000001: ", "extra"}, [&](auto& state) {
    state.push_back(whole_slice("extra", bench_.random({2}, DType::fp32)));
  });
  expect_refused("a tensor less", {"flags"}, [](auto& state) { state.pop_back(); });
  expect_refused("another shape", {"norm.weight", "[7, 13]", "[13, 7]"}, [](auto& state) {
    state[2] = whole_slice("norm.weight", state[2].local.view({13, 7}));
  });
  expect_refused("another type", {"norm.weight", "fp32", "bf16"}, [&](auto& state) {
    state[2] = whole_slice("norm.weight", bench_.poisoned({7, 13}, DType::bf16));
  });
}

TEST_F(CheckpointerTest, a_reader_of_weights_may_load_a_subset_and_convert) {
  state_[2].local = bench_.random({7, 13}, DType::fp32);
  Checkpointer(path(), state_).save(1, Json(3));
  const std::vector<StateSlice> wanted = {
      whole_slice("norm.weight", bench_.poisoned({7, 13}, DType::bf16))};
  EXPECT_EQ(load_checkpoint(path(1), wanted, Match::subset).about.as_integer(), 3);
  for (std::int64_t i = 0; i < 7 * 13; ++i)
    EXPECT_EQ(wanted[0].local.as<BFloat16>()[i], to_bf16(state_[2].local.as<float>()[i]));
  const std::vector<StateSlice> flags = {
      whole_slice("flags", bench_.poisoned({7, 13}, DType::fp32))};
  expect_refusal<DataError>("checkpoint/checkpointer", "a type that is not converted",
                            {"flags", "uint8", "fp32"},
                            [&] { load_checkpoint(path(1), flags, Match::subset); });
}

// The slices of `tensor` for every part, each cut into two ranges at `cut`.
std::vector<StateSlice> slices_of(Bench& bench, Tensor tensor, const Split& split, std::int64_t cut,
                                  bool filled) {
  std::vector<StateSlice> slices;
  for (int part = 0; part < split.parts; ++part) {
    const auto elements = part_elements(tensor.shape, split, part);
    const auto middle = std::min(cut, elements);
    for (const Piece piece : {Piece{part, 0, middle}, Piece{part, middle, elements}}) {
      if (piece.begin == piece.end) continue;
      Tensor local = bench.poisoned({piece.end - piece.begin}, tensor.dtype);
      slices.push_back({"w", tensor.shape, split, piece, local});
      if (!filled) continue;
      intersect(Runs(tensor.shape, split, piece),
                Runs(tensor.shape, unsplit(tensor.shape), {0, 0, tensor.elements()}),
                [&](std::int64_t to, std::int64_t from, std::int64_t count) {
                  std::copy_n(tensor.as<float>() + from, count, local.as<float>() + to);
                });
    }
  }
  return slices;
}

TEST_F(CheckpointerTest, every_layout_reads_every_other_layout) {
  const Shape shape{40, 30};
  const Tensor tensor = bench_.random(shape, DType::fp32);
  const std::vector<std::pair<Split, std::int64_t>> layouts = {
      {unsplit(shape), 1200}, {unsplit(shape), 777}, {{0, 3, 14}, 100}, {{1, 4, 8}, 55},
      {{1, 2, 15}, 600},      {{0, 40, 1}, 7},       {{1, 7, 5}, 1}};
  std::int64_t step = 0;
  for (const auto& [from, from_cut] : layouts) {
    Checkpointer(path(), slices_of(bench_, tensor, from, from_cut, true)).save(++step, Json());
    for (const auto& [to, to_cut] : layouts) {
      auto target = slices_of(bench_, tensor, to, to_cut, false);
      load_checkpoint(path(step), target, Match::exact);
      const auto expected = slices_of(bench_, tensor, to, to_cut, true);
      for (std::size_t i = 0; i < target.size(); ++i)
        expect_bitwise_equal(target[i].local, expected[i].local, str("step ", step, " slice ", i));
      // Only one rank of that layout.
      target = slices_of(bench_, tensor, to, to_cut, false);
      load_checkpoint(path(step), std::span(target).last(1), Match::exact);
      expect_bitwise_equal(target.back().local, expected.back().local, str("step ", step));
    }
  }
}

TEST_F(CheckpointerTest, slices_larger_than_one_read_are_loaded) {
  const Shape shape{3, 700001};
  const Tensor tensor = bench_.random(shape, DType::fp32);
  Checkpointer(path(), {whole_slice("w", tensor)}).save(1, Json());
  Tensor whole = bench_.poisoned(shape, DType::fp32);
  load_checkpoint(path(1), std::vector{whole_slice("w", whole)}, Match::exact);
  expect_bitwise_equal(whole, tensor, "whole");
  const auto expected = slices_of(bench_, tensor, {1, 2, 350001}, 500000, true);
  const auto target = slices_of(bench_, tensor, {1, 2, 350001}, 500000, false);
  load_checkpoint(path(1), target, Match::exact);
  for (std::size_t i = 0; i < target.size(); ++i)
    expect_bitwise_equal(target[i].local, expected[i].local, str("slice ", i));
}

TEST_F(CheckpointerTest, a_state_that_does_not_cover_its_tensors_is_not_written) {
  auto slices = slices_of(bench_, bench_.random({4, 4}, DType::fp32), {0, 2, 2}, 3, true);
  slices.pop_back();
  expect_refusal<DataError>("checkpoint/checkpointer", "slices that do not cover", {"w: part 1: "},
                            [&] { Checkpointer(path(), slices).save(1, Json()); });
  EXPECT_TRUE(entries(path()).empty());
  slices[0].piece.end = 4;
  EXPECT_THROW(Checkpointer(path(), slices), Error);
}

}  // namespace lockstep::testing::checkpointer_test
