#include "train/run/run_config.h"

#include "dist/job/agreement.h"
#include "train/run/run_parts.h"
#include "train/step/numerics.h"

namespace lockstep {

RunConfig settle(Config written, RowKind rows, Stream& compute, World& world) {
  Config config = std::move(written);
  config.data.rows = rows;
  config.data.document_mask = config.data.document_mask || rows == RowKind::packed;
  config.train.threads = threads_of(config);
  config.train.attention = attention_of(config, compute);
  if (compute.is_cuda() && world.size() > 1)
    agree(world, "numerics",
          fields_of(numerics_here(compute, world.size()), in_words(config.train.attention)));
  return RunConfig(std::move(config));
}

}  // namespace lockstep
