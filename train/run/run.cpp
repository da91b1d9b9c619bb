#include "train/run/run.h"

#include <algorithm>

#include "core/gpu.h"
#include "core/system/machine.h"
#include "dist/job/agreement.h"
#include "train/step/run_state.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

bool any_says(World& world, bool mine) {
  const auto said = world.exchange(mine ? "yes" : "no");
  return std::find(said.begin(), said.end(), "yes") != said.end();
}

// The configuration, where this machine has room for what it reads at a time.
const Config& with_room(const Config& config, MachineFiles& files) {
  std::vector<Loader::Config> loaders{train_loader(config, files.files())};
  if (!config.data.validation.empty()) loaders.push_back(validation_loader(config, files.files()));
  files.need_room(loaders);
  return config;
}

}  // namespace

Run::Run(const TrainOptions& given, const RunRanks& ranks)
    : options(given),
      world(ranks.world),
      topology(ranks.topology),
      signals(ranks.world.rank() == 0),
      directory(open_run(options.run, world)),
      log(world.rank() == 0
              ? RunLog(world, directory, options.config.log, options.config.train.steps)
              : RunLog()),
      gpu(options.device.kind == Device::Kind::cuda
              ? std::optional<GpuWatch>(std::in_place, options.device)
              : std::nullopt),
      compute(options.device, "compute", Stream::Mode::immediate, threads_of(options.config)),
      files(options.config.data, world),
      config(settled(with_room(options.config, files), compute, world, files.files())),
      mesh(mesh_of(config.layout, world.size())),
      place(data_place(mesh, world.rank())),
      bytes(announced_bytes(config, compute, world, gpu ? gpu->others() : "")),
      pinned(options.device, Arena::Memory::pinned_host, bytes.batches),
      loader(train_loader(config, files.files()), static_cast<int>(config.train.micro_batch),
             place.rank, place.ranks, pinned),
      validation(held_out(with_rows(config, loader), loader.sources(), world, place, pinned,
                          files.files())),
      tokenizer(run_tokenizer(config, loader.sources(), directory, world, files.files())),
      prompt(sample_prompt(config, tokenizer)),
      arenas(options.device, bytes.training, world.allocate(bytes.training.device)),
      training(training_config(config), compute, arenas, make_comms(world, mesh, topology)),
      state(state_slices(training.params(), training.optimizer()), compute, bytes.copies),
      shares_state(any_says(world, state.shares_state())),
      meter(meter_config(config, compute, world)),
      checkpoints(config.checkpoint, directory.checkpoints(), state.slices(), world, topology) {
  config.data = with_rows(config, loader).data;
}

Run::~Run() {
  files.stop();
  training.hold_update(std::nullopt);  // which is of a stream that goes first
}

std::int64_t Run::end_sample() const {
  return progress.first_sample +
         std::max<std::int64_t>(steps() - step(), 0) * loader.step_samples();
}

RunFacts Run::facts() const {
  return {.config = config,
          .settings = options.settings,
          .history = loader.sources().history(),
          .threads = compute.threads(),
          .device = compute.is_cuda() ? gpu::properties(compute.device().index).name : "cpu",
          .attention = in_words(config.train.attention),
          .numerics = numerics ? &*numerics : nullptr};
}

std::vector<std::string> Run::hosts() const {
  if (topology == nullptr) return {host_name()};
  std::vector<std::string> hosts;
  for (const auto& rank : topology->places)
    if (std::find(hosts.begin(), hosts.end(), rank.host) == hosts.end()) hosts.push_back(rank.host);
  return hosts;
}

int Run::agreed_stop() {
  int most = 0;
  for (const auto& said : world.exchange(std::to_string(signals.exit_code().value_or(0))))
    most = std::max(most, std::stoi(said));
  return most;
}

std::uint64_t Run::read_weight_hash(std::int64_t step) {
  const auto result = training.weight_hash().read();
  if (result.unequal.empty()) return result.hash;
  std::string groups;
  for (const auto& ranks : result.unequal) {
    groups += str(groups.empty() ? "" : "; ", rank_list(ranks));
    if (topology != nullptr) groups += str(" on ", hosts_in_words(*topology, ranks));
  }
  throw TransientError(str("behind step ", step,
                           ", weights that several ranks hold are not the same bits on all of "
                           "them. Alike are ",
                           groups,
                           ". Memory or a processor errs, likely where fewer are alike; the same "
                           "command goes on from ",
                           saved_step < 0 ? "the beginning" : str("step ", saved_step),
                           ", whose weights were compared"));
}

}  // namespace lockstep
