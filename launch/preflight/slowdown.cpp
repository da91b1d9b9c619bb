#include "launch/preflight/slowdown.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The first group of several ranks that moves parameters beside compute.
Communicator* group_beside(Comms& comms) {
  for (Communicator* group :
       {comms.gathers.get(), comms.shard.inside.get(), comms.shard.across.get(),
        comms.replicate.inside.get(), comms.replicate.across.get()})
    if (group->size() > 1) return group;
  return nullptr;
}

class Overlap {
 public:
  Overlap(PreflightRank& rank, Communicator& group, const MatmulShape& shape)
      : rank_(rank),
        group_(group),
        scope_(*rank.transfers),
        in_(rank.transfers->allocate("in", DType::fp32, {kReceived / 4 / group.size()})),
        out_(rank.transfers->allocate("out", DType::fp32, {in_.shape[0] * group.size()})),
        product_(rank.compute, shape),
        beside_(rank.compute.device(), "beside",
                rank.on_gpus() ? Stream::Mode::immediate : Stream::Mode::queued) {
    fill(rank.compute, in_, 1.0f);
    make_product();
    gathers_seconds(2);
  }

  Slowdown measure() {
    const double gather_seconds = median_of_ranks(rank_.world, gathers_seconds(5) / 5);
    const int gathers = calls_in_window(gather_seconds);  // the same on all ranks
    const double gathers_alone = gathers_seconds(gathers);
    rank_.meet();
    const int products = calls_in_window(products_seconds(3) / 3);
    const double products_alone = products_seconds(products);
    const double products_beside = products_beside_seconds(products, gathers);
    const double gathers_beside = gathers_beside_seconds(gathers);
    return {median_of_ranks(rank_.world, std::max(1.0, products_beside / products_alone)),
            median_of_ranks(rank_.world, std::max(1.0, gathers_beside / gathers_alone))};
  }

 private:
  static constexpr std::int64_t kReceived = 4 * kMiB;  // bytes of an all-gather

  void gather(int calls) {
    for (int i = 0; i < calls; ++i)
      group_.all_gather(out_, in_, beside_);
  }
  void make_product() {
    product_.make();
    rank_.compute.synchronize();
  }

  double gathers_seconds(int calls) {
    rank_.meet();
    const auto begin = Clock::now();
    gather(calls);
    beside_.synchronize();
    return seconds_since(begin);
  }
  double products_seconds(int calls) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i)
      make_product();
    return seconds_since(begin);
  }
  // Time of matmuls while all-gathers, which take longer, run.
  double products_beside_seconds(int products, int gathers) {
    rank_.meet();
    gather(4 * gathers);
    const double seconds = products_seconds(products);
    beside_.synchronize();
    return seconds;
  }
  // Time of all-gathers while matmuls run.
  double gathers_beside_seconds(int gathers) {
    rank_.meet();
    const auto begin = Clock::now();
    gather(gathers);
    const Event done = beside_.record();
    while (!done.is_done())
      make_product();
    const double seconds = seconds_since(begin);
    beside_.synchronize();
    return seconds;
  }

  PreflightRank& rank_;
  Communicator& group_;
  Arena::Scope scope_;
  Tensor in_, out_;
  TimedMatmul product_;
  Stream beside_;
};

}  // namespace

Slowdown measure_slowdown(PreflightRank& rank, const MatmulShape& shape) {
  Communicator* group = group_beside(rank.comms);
  if (group == nullptr) return {};
  return Overlap(rank, *group, shape).measure();
}

}  // namespace lockstep
