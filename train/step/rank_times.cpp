#include "train/step/rank_times.h"

#include "kernels/elementwise.h"

namespace lockstep {

RankTimes::RankTimes(Comms& comms, Arena& arena, Arena& pinned)
    : comms_(comms), mine_(arena.allocate("rank_seconds", DType::fp32, {1})) {
  const auto ranks = comms.all->size();
  all_ =
      Mirror("seconds_of_ranks", arena.allocate("seconds_of_ranks", DType::fp32, {ranks}), pinned);
}

void RankTimes::enqueue(Stream& stream, double seconds) {
  fill(stream, mine_, static_cast<float>(seconds));
  comms_.all->all_gather(all_.device(), mine_, stream);
  all_.fetch(stream);
  done_ = stream.record();
}

std::vector<double> RankTimes::read() {
  done_.synchronize();
  const auto* seconds = all_.host().as<float>();
  return {seconds, seconds + all_.host().elements()};
}

}  // namespace lockstep
