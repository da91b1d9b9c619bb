#include "dist/control_world.h"

#include <utility>

namespace lockstep {
namespace {

// Rank 0 may read a large checkpoint meanwhile; of a rank that died the heartbeat knows at once.
constexpr Milliseconds kExchangeTime{1'800'000};

class ControlWorld final : public World {
 public:
  ControlWorld(Control& control, std::function<void(const std::string&, int)> on_abort)
      : control_(control), on_abort_(std::move(on_abort)) {}
  int rank() const override { return control_.rank(); }
  int size() const override { return control_.ranks(); }

  std::unique_ptr<Communicator> connect(const std::string& name,
                                        const std::vector<int>& /*ranks*/) override {
    throw ConfigError(str("tensors of the group '", name,
                          "' need MPI on CPUs; start the ranks with mpirun -n RANKS or "
                          "srun --mpi=pmix"));
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    std::vector<std::string> texts;
    for (const auto& bytes : control_.all_gather("exchange", as_bytes(mine), kExchangeTime))
      texts.push_back(as_text(bytes));
    return texts;
  }
  void abort(const std::string& why, int exit_code) noexcept override { on_abort_(why, exit_code); }

 private:
  Control& control_;
  std::function<void(const std::string&, int)> on_abort_;
};

}  // namespace

std::unique_ptr<World> make_control_world(
    Control& control, std::function<void(const std::string& why, int exit_code)> on_abort) {
  return std::make_unique<ControlWorld>(control, std::move(on_abort));
}

}  // namespace lockstep
