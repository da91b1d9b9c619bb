#include "train/run/batch_split.h"

#include "data/loader.h"
#include "train/layout.h"

namespace lockstep {

StepSplit step_split(const Config& c) {
  StepSplit split{.sequences = c.train.batch_tokens / c.train.sequence_length,
                  .data_ranks = data_ranks(c.layout)};
  split.micro_batches =
      Loader::micro_steps_of(split.sequences, c.train.micro_batch, split.data_ranks);
  split.computed = split.micro_batches * c.train.micro_batch * split.data_ranks;
  return split;
}

std::string masked_in_words(const Config& c) {
  const auto [sequences, ranks, micro_batches, computed] = step_split(c);
  if (computed == sequences) return "";
  const auto masked = computed - sequences;
  return str("a step has ", sequences, sequences == 1 ? " sequence" : " sequences", ", but ",
             computed, " are computed, ", micro_batches, " x ", c.train.micro_batch,
             ranks == 1 ? std::string() : str(" on each of ", ranks, " data-parallel ranks"), ": ",
             masked,
             masked == 1 ? " is masked padding; it costs compute and contributes no gradient. "
                         : " are masked padding; they cost compute and contribute no gradient. ",
             sequences % ranks == 0
                 ? str("To avoid it, set a train.micro_batch that divides ", sequences / ranks)
                 : str("To avoid it, set train.batch_tokens to a multiple of ", ranks,
                       " sequences, or use a number of ranks that divides ", sequences));
}

}  // namespace lockstep
