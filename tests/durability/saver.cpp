// saver saves checkpoints while power_loss_test.py cuts the power. Its two ranks are threads with a
// state that is a function of the step.
//
//   saver save DIRECTORY [MEMORY]
//     resumes from the newest checkpoint and saves step after step until it is killed; the newest
//     two stay. Prints a step when its save() has returned, and 0 before the first. With MEMORY
//     each rank saves below it, as if on its own host; a step counts after its copy to DIRECTORY.
//   saver check DIRECTORY
//     reads every checkpoint and prints the steps.
//
// Exits with 1 and the reason if a checkpoint is damaged or differs from its state.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>

#include "checkpoint/checkpoint_copier.h"
#include "checkpoint/checkpointer.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/philox.h"
#include "tests/support/thread_world.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kRows = 20, kColumns = 701;

// State holds some rows of two tensors.
class State {
 public:
  State(std::int64_t first, std::int64_t rows, const Split& split, int part) {
    for (const auto& [name, dtype] : {std::pair{"w", DType::bf16}, std::pair{"w/m", DType::fp32}}) {
      const auto local = arena_.allocate(name, dtype, {rows * kColumns});
      slices.push_back({name, {kRows, kColumns}, split, {part, 0, local.elements()}, local});
    }
    first_ = first * kColumns;
  }
  explicit State(int rank)
      : State(rank * kRows / kRanks, kRows / kRanks, {0, kRanks, kRows / kRanks}, rank) {}
  State() : State(0, kRows, unsplit({kRows, kColumns}), 0) {}

  void fill(std::int64_t step) {
    each(step, [](std::byte& here, std::byte wanted) { here = wanted; });
  }
  void expect(std::int64_t step) {
    each(step, [&](std::byte here, std::byte wanted) {
      LOCKSTEP_CHECK(here == wanted, "the checkpoint of step ", step, " is not as it was saved");
    });
  }
  std::vector<StateSlice> slices;

 private:
  template <class Visit>
  void each(std::int64_t step, const Visit& visit) {
    for (const auto& slice : slices) {
      const auto size = bytes_per_element(slice.local.dtype);
      for (std::int64_t i = 0; i < slice.local.bytes(); ++i)
        visit(slice.local.data[i], static_cast<std::byte>(philox(
                                       static_cast<std::uint64_t>(step), purpose_of(slice.name),
                                       static_cast<std::uint64_t>(first_ * size + i))[0]));
    }
  }
  Arena arena_{Device{}, Arena::Memory::host, std::int64_t{1} << 20};
  std::int64_t first_ = 0;
};

void announce(std::int64_t step) {
  std::printf("%lld\n", static_cast<long long>(step));
  std::fflush(stdout);
}

[[noreturn]] void save(World& world, const char* directory, const char* memory) {
  State state(world.rank());
  if (memory != nullptr) make_directories(directory);  // as a run does; copies do not create it
  const Retention two{.last = 2};
  Checkpointer checkpointer(std::filesystem::path(directory), state.slices, two, &world);
  const auto about = checkpointer.load_newest([](const Json&) {});
  std::int64_t step = about ? about->as_integer() : 0;
  if (about) state.expect(step);
  std::optional<Checkpointer> of_machine;
  std::optional<CheckpointCopier> copies;
  if (memory != nullptr) {
    const auto local = std::filesystem::path(memory) / std::to_string(world.rank());
    const HostRanks machine{.ranks = {world.rank()}, .own_directory = true};
    of_machine.emplace(local, state.slices, two, &world, machine);
    copies.emplace(world, local, std::filesystem::path(directory), machine.ranks);
  }
  for (;; ++step) {
    if (world.rank() == 0) announce(step);
    state.fill(step + 1);
    (of_machine ? *of_machine : checkpointer).save(step + 1, Json(step + 1));
    if (copies) copies->copy(step + 1, two, {});
  }
}

void check(const char* directory) {
  for (const auto step : checkpoint_steps(directory)) {
    State state;
    verify_checkpoint(checkpoint_path(directory, step), Depth::contents);
    const auto about = Checkpointer(std::filesystem::path(directory), state.slices).load(step);
    LOCKSTEP_CHECK(about.as_integer() == step, "step ", step, " says it is ", about.dump());
    state.expect(step);
    announce(step);
  }
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  using namespace lockstep;
  const std::string_view verb = count > 2 ? arguments[1] : "";
  try {
    if (verb == "save" && count < 5)
      run_thread_ranks(kRanks, [&](World& world) { save(world, arguments[2], arguments[3]); });
    else if (verb == "check" && count == 3)
      check(arguments[2]);
    else
      LOCKSTEP_FAIL("usage: saver save DIRECTORY [MEMORY] | check DIRECTORY");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
