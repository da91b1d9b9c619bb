// The start of a run: which checkpoint it resumes from, and what its flags change.
#pragma once

#include <optional>

#include "core/json.h"
#include "train/run/run_context.h"

namespace lockstep {

// Loads the newest checkpoint, or the one of --from-step, and sets the position and the data of the
// run. Returns its `about`, or nothing if there is no checkpoint. Collective. A rollback is carried
// out once all checks have passed: the amendments are recorded, then the metrics and checkpoints of
// the later steps are set aside. If it is interrupted, the same command continues it. Throws
// ConfigError if the configuration or a flag does not suit the run, and TransientError if the step
// is of another phase than this start assumed.
std::optional<Json> load_start(Run& run);

// Applies the flags of this start to a run that has no checkpoint of its own.
void amend_fresh_run(Run& run);

}  // namespace lockstep
