#include "launch/plan/step_program.h"

#include <algorithm>

#include "train/step/batch_shape.h"
#include "train/step/volume.h"

namespace lockstep {

StepProgram record_step(const TrainingConfig& config, Device device, int threads, int rank,
                        const DomainMap* topology) {
  StepProgram program;
  program.log = std::make_unique<OpLog>();
  Stream compute(device, "compute", Stream::Mode::measuring, threads);
  compute.set_op_log(program.log.get());
  compute.record();  // makes it the first stream of the log
  Arenas arenas = Arenas::measure(device);
  LoneWorld one_of_all(rank, config.mesh.world());
  Training training(config, compute, arenas,
                    make_comms(one_of_all, config.mesh, topology, config.reduce));
  program.shape = step_shape(training);
  program.micro_batches = program.shape.micro_batches;
  const Comms& comms = training.params().comms();
  for (std::size_t g = 0; g < kGroups; ++g)
    program.groups[g] = place_of(comms, static_cast<Group>(g), topology);
  program.log->clear();
  const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
  const auto recorded = std::min<std::int64_t>(program.micro_batches, 3);
  training.begin_step(1, 0);
  for (std::int64_t m = 1; m <= recorded; ++m) {
    training.micro_step(batch, m == recorded);
    program.micro_ends.push_back(program.log->entries().size());
  }
  training.finish_step();
  const auto end = program.log->entries().size();
  measure_beside_steps(training, compute);
  program.log->cut(end);
  program.peak = arenas.peak();
  program.peak_by_purpose = arenas.device.peak_by_purpose();
  program.pinned_by_purpose = arenas.pinned.peak_by_purpose();
  return program;
}

}  // namespace lockstep
