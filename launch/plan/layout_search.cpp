#include "launch/plan/layout_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/integer.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "data/loader.h"
#include "launch/plan/cluster_step.h"
#include "launch/plan/cluster_topology.h"
#include "model/token_chunks.h"
#include "train/fp8_sizes.h"
#include "train/layout.h"
#include "train/run/batch_split.h"
#include "train/run/memory_budget.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

// Numbers of layers of the two models that estimate a layout. Both are odd, because the weights of
// blocks alternate between two buffers.
constexpr std::int64_t kFew = 3, kMore = 5;
constexpr std::size_t kFinalists = 12;  // layouts that are estimated with all layers

std::string offload_in_words(const Config::Train& train) {
  if (!train.offloads()) return "nothing offloaded";
  return str(train.offload_activations ? "activations" : "",
             train.offload_activations && train.offload_optimizer ? " and " : "",
             train.offload_optimizer ? "optimizer" : "", " offloaded");
}

// Number of masked sequences that pad a step.
std::int64_t masked_sequences(const Config& c) {
  const auto split = step_split(c);
  return split.computed - split.sequences;
}

// Lists the settings of `config` that differ from `other`.
std::string difference(const Config& config, const Config& other) {
  std::string text;
  const auto say = [&](bool differs, const std::string& what) {
    if (differs) text += (text.empty() ? "" : ", ") + what;
  };
  const auto &l = config.layout, &o = other.layout;
  say(l.tensor != o.tensor, str("tensor ", l.tensor));
  say(l.shard != o.shard, str("shard ", l.shard));
  say(l.sharding != o.sharding && l.shard > 1, str("sharding ", name(l.sharding)));
  say(l.tensor_chunks != o.tensor_chunks, str("tensor_chunks ", l.tensor_chunks));
  say(l.keep_gathered != o.keep_gathered, str("keep_gathered ", l.keep_gathered));
  const auto &t = config.train, &s = other.train;
  say(t.micro_batch != s.micro_batch, str("micro-batch ", t.micro_batch));
  const auto masked = masked_sequences(config);
  say(masked > masked_sequences(other),
      str(masked, " of ", step_split(config).computed, " sequences masked"));
  say(t.recompute != s.recompute, in_words(t.recompute));
  say(t.offload_activations != s.offload_activations || t.offload_optimizer != s.offload_optimizer,
      offload_in_words(t));
  return text.empty() ? "the same" : text;
}

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

// Sizes of the axes; the remaining ranks are replicas.
struct Axes {
  std::int64_t tensor = 1, shard = 1;
};

std::vector<Axes> axes_of(const Config& c, const DomainMap& launched) {
  const auto& m = c.model;
  std::set<std::int64_t> domains;  // sizes of the NVLink domains
  for (const Domain& domain : launched.domains)
    domains.insert(std::ssize(domain.ranks));
  std::vector<Axes> all;
  for (const auto tensor : divisors(c.layout.ranks)) {
    const auto fits = [&](std::int64_t ranks) { return ranks % tensor == 0; };
    if (!std::ranges::all_of(domains, fits) || m.heads % tensor != 0 || m.kv_heads % tensor != 0 ||
        m.mlp_width % tensor != 0 || !has_fp8_matmuls(m, c.precision.fp8, tensor))
      continue;
    for (const auto shard : divisors(c.layout.ranks / tensor))
      all.push_back({tensor, shard});
  }
  return all;
}

// Sizes of a micro-batch: powers of two, and all sequences of a rank in a step.
std::vector<std::int64_t> micro_batches(const Config& c, std::int64_t tensor) {
  const auto sequences = c.train.batch_tokens / c.train.sequence_length;
  const auto each = divide_up(sequences, c.layout.ranks / tensor);
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n < each; n *= 2)
    all.push_back(n);
  all.push_back(each);
  std::erase_if(all, [&](std::int64_t n) { return !has_fp8_matmuls(c, n); });
  return all;
}

struct Offloads {
  bool activations = false, optimizer = false;
};

struct Priced {
  Config config;
  double seconds = 0;
};

class Search {
 public:
  Search(const Config& config, const Cluster& cluster)
      : base_(planned_on(cluster, config)),
        cluster_(cluster),
        device_{cluster.device},
        room_(room_on(cluster, static_cast<int>(config.layout.ranks))),
        launched_(launched_on(cluster, static_cast<int>(config.layout.ranks))) {
    base_.train.attention = config.train.attention;  // chosen again for each layout
    base_.layout.keep_gathered = 0;
    base_.layout.tensor_chunks = 1;
    base_.train.offload_activations = base_.train.offload_optimizer = false;
  }

  LayoutSearch run(int threads, std::size_t most) {
    const auto axes = axes_of(base_, launched_);
    ThreadPool pool(threads);
    pool.run(std::ssize(axes),
             [&](std::int64_t i, int /*thread*/) { price(axes[static_cast<std::size_t>(i)]); });
    LayoutSearch found;
    found.priced = std::ssize(priced_);
    std::ranges::sort(priced_, {}, [](const Priced& one) { return one.seconds; });
    if (priced_.size() > kFinalists) priced_.resize(kFinalists);
    found.best.resize(priced_.size());
    pool.run(std::ssize(priced_), [&](std::int64_t i, int /*thread*/) {
      auto& one = found.best[static_cast<std::size_t>(i)];
      one = with_best_chunks(priced_[static_cast<std::size_t>(i)].config);
    });
    std::erase_if(found.best, [](const FoundLayout& one) { return !one.estimate.fits(); });
    std::ranges::stable_sort(found.best, {}, [](const FoundLayout& one) {
      // The smallest comes first among layouts that are equally fast.
      return std::pair(std::round(1e6 * one.estimate.time.total()), one.estimate.needed_bytes());
    });
    if (found.best.size() > most) found.best.resize(most);
    if (found.best.empty()) {
      found.misses = smallest(pool, most);
      return found;
    }
    for (auto& one : found.best)
      one.why = why(one, found.best.front());
    found.misses = misses_near(found.best.front(), pool);
    if (found.misses.size() > most) found.misses.resize(most);
    return found;
  }

  // True if some layout fits in memory.
  bool has_room() const {
    return std::ranges::any_of(axes_of(base_, launched_), [&](const Axes& axes) {
      Config shared = with(axes);
      shared.layout.sharding = Sharding::full;
      const auto tight = tightest(shared);
      return std::ranges::any_of(tight, [&](const Config& c) { return fits(c); });
    });
  }

 private:
  Config with(const Axes& axes) const {
    Config c = base_;
    c.layout.tensor = axes.tensor;
    c.layout.shard = axes.shard;
    c.layout.replicate = c.layout.ranks / axes.tensor / axes.shard;
    return c;
  }

  static Config with(Config c, std::int64_t micro_batch, Recompute recompute,
                     const Offloads& offloads) {
    c.train.micro_batch = micro_batch;
    c.train.recompute = recompute;
    c.train.offload_activations = offloads.activations;
    c.train.offload_optimizer = offloads.optimizer;
    return c;
  }

  // The attention engine depends on the micro-batch.
  Config with_attention(const Config& c) const { return planned_on(cluster_, c); }

  static bool may_split(const Config& c) {
    const auto k = c.layout.tensor_chunks, tokens = c.train.micro_batch * c.train.sequence_length;
    return token_chunks(tokens, c.layout.tensor, k, c.precision.fp8) == k;
  }

  // Estimates a layout with each number of chunks of its tokens, and returns the fastest.
  FoundLayout with_best_chunks(Config c) const {
    FoundLayout best;
    for (const std::int64_t chunks : {1, 2, 4}) {
      c.layout.tensor_chunks = chunks;
      if (!may_split(c)) break;
      FoundLayout one;
      one.config = with_attention(c);
      one.estimate = estimate(one.config, cluster_);
      if (chunks == 1 || one.estimate.time.total() < best.estimate.time.total())
        best = std::move(one);
    }
    return best;
  }

  // Extrapolates act(configuration) from two small numbers of layers to all layers. Either all
  // blocks or none stay gathered.
  template <class Act>
  auto of_all_layers(const Config& c, const Act& act) const {
    const auto layers = c.model.layers;
    if (layers <= kMore + 1) return act(c);
    const auto low = act(with_layers(c, kFew)), high = act(with_layers(c, kMore));
    return low + (high - low) / (kMore - kFew) * (layers - kFew);
  }

  static Config with_layers(Config c, std::int64_t layers) {
    if (c.layout.keep_gathered == c.model.layers) c.layout.keep_gathered = layers;
    c.model.layers = layers;
    return c;
  }

  static Config keeping(Config c, std::int64_t blocks) {
    c.layout.keep_gathered = blocks;
    return c;
  }

  bool on_gpus() const { return device_.kind == Device::Kind::cuda; }

  // Memory of the device that a rank needs, gathered weights included.
  std::int64_t device_bytes(const Config& c) const {
    return of_all_layers(c, [&](const Config& few) {
      const auto needed = run_bytes(few, room_, /*may_copy=*/false).sum();
      return on_gpus() ? needed.device : needed.device + needed.pinned;
    });
  }
  // Host memory that a rank with a GPU needs.
  std::int64_t host_bytes(const Config& c) const {
    return of_all_layers(c, [&](const Config& few) {
      return run_bytes(few, room_, /*may_copy=*/false).sum().pinned;
    });
  }
  // Memory of the device that a rank may use.
  std::int64_t device_room() const {
    return on_gpus() ? room_.gpu_bytes : room_.host_bytes / room_.ranks;
  }

  bool fits(const Config& c) const {
    if (device_bytes(c) > device_room()) return false;
    const bool is_known = on_gpus() && room_.host_bytes != MemoryRoom::kUnknown;
    return !is_known || host_bytes(c) <= room_.host_bytes / room_.ranks;
  }

  static bool has_one_micro_batch(const Config& c, std::int64_t micro_batch) {
    const auto sequences = c.train.batch_tokens / c.train.sequence_length;
    return Loader::micro_steps_of(sequences, micro_batch, data_ranks(c.layout)) == 1;
  }

  double seconds_of(const Config& c, const DomainMap& domains) const {
    return of_all_layers(c, [&](const Config& few) {
      const auto program = record_step(training_config(few), device_, threads_of(few), 0, &domains);
      return step_time_on(cluster_, program).total();
    });
  }

  void price(const Axes& axes) {
    Config c = with(axes);
    const auto domains = placed_in(training_config(c).mesh, launched_);
    for (const auto sharding :
         {Sharding::full, Sharding::weights, Sharding::gradients, Sharding::optimizer}) {
      c.layout.sharding = sharding;
      price(c, domains);
      if (axes.shard == 1) return;  // sharding makes no difference
    }
  }

  void price(const Config& layout, const DomainMap& domains) {
    bool has_any = false;
    for (const auto micro_batch : micro_batches(base_, layout.layout.tensor)) {
      // With one micro-batch, whole gradients only take more memory than with `full`.
      if (layout.layout.sharding == Sharding::weights && has_one_micro_batch(layout, micro_batch))
        return;
      const auto all = fitting(layout, micro_batch);
      if (all.empty() && !has_any && layout.layout.sharding == Sharding::full) {
        const std::lock_guard lock(mutex_);
        std::ranges::move(tightest(layout), std::back_inserter(too_large_));
      }
      if (all.empty()) return;
      has_any = true;
      for (const auto& c : all) {
        Priced priced{c, seconds_of(c, domains)};
        if (may_keep(c)) priced = with_kept(priced, domains);
        const std::lock_guard lock(mutex_);
        priced_.push_back(std::move(priced));
      }
    }
  }

  // The configurations of a layout that need the least memory: without offload, and on GPUs with
  // each kind of offload.
  std::vector<Config> tightest(const Config& layout) const {
    const auto sizes = micro_batches(base_, layout.layout.tensor);
    if (sizes.empty()) return {};
    const auto of = [&](const Offloads& offloads) {
      return with_attention(with(layout, sizes.front(), Recompute::block, offloads));
    };
    if (!may_offload()) return {of({})};
    return {of({}), of({.optimizer = true}), of({.activations = true}),
            of({.activations = true, .optimizer = true})};
  }

  bool may_offload() const {
    return on_gpus() && base_.train.cuda_graphs != Config::CudaGraphs::on;
  }

  // The layouts that are too large, those that miss the least memory first.
  std::vector<MissedLayout> smallest(ThreadPool& pool, std::size_t most) {
    std::vector<std::pair<std::int64_t, std::size_t>> order(too_large_.size());  // bytes, which
    pool.run(std::ssize(order), [&](std::int64_t i, int /*thread*/) {
      const auto which = static_cast<std::size_t>(i);
      order[which] = {missing(too_large_[which]), which};
    });
    std::ranges::sort(order);
    if (order.size() > most) order.resize(most);
    std::vector<Config> nearest;
    for (const auto& [bytes, which] : order)
      nearest.push_back(too_large_[which]);
    auto misses = estimated(nearest, pool);
    std::erase_if(misses, [](const MissedLayout& one) {
      return one.missing_bytes + one.missing_host_bytes <= 0;
    });
    for (auto& one : misses)
      one.why = str(layout_in_words(one.config), ": ", too_much(one));
    return misses;
  }

  // Missing bytes of device and host memory together.
  std::int64_t missing(const Config& c) const {
    const bool is_known = on_gpus() && room_.host_bytes != MemoryRoom::kUnknown;
    const auto on_host = is_known ? host_bytes(c) - room_.host_bytes / room_.ranks : 0;
    return std::max<std::int64_t>(device_bytes(c) - device_room(), 0) +
           std::max<std::int64_t>(on_host, 0);
  }

  static bool may_keep(const Config& c) {
    return c.layout.shard > 1 && divides_weights(c.layout.sharding);
  }

  // Keeps as many blocks gathered as fit, if that is faster. If all weights fit, it changes
  // nothing: another sharding has them whole.
  Priced with_kept(const Priced& none, const DomainMap& domains) const {
    const Config& c = none.config;
    Config whole = c;
    whole.layout.sharding =
        c.layout.sharding == Sharding::full ? Sharding::gradients : Sharding::optimizer;
    if (device_bytes(whole) <= device_room()) return none;
    const auto blocks = most_kept(c);
    if (blocks == 0) return none;
    const double seconds = seconds_keeping(none, blocks, domains);
    return seconds < none.seconds ? Priced{keeping(c, blocks), seconds} : none;
  }

  // Interpolates, because each kept block saves the same time.
  double seconds_keeping(const Priced& none, std::int64_t blocks, const DomainMap& domains) const {
    const auto layers = none.config.model.layers;
    if (layers <= kMore + 1) return seconds_of(keeping(none.config, blocks), domains);
    const double with_all = seconds_of(keeping(none.config, layers), domains);
    const double share = static_cast<double>(blocks) / static_cast<double>(layers);
    return none.seconds + (with_all - none.seconds) * share;
  }

  // Number of blocks that can stay gathered. All blocks need less memory than all but one or two,
  // because those need the shared buffers too.
  std::int64_t most_kept(const Config& c) const {
    const auto layers = c.model.layers;
    if (device_bytes(keeping(c, layers)) <= device_room()) return layers;
    if (layers <= kMore + 1) {
      auto blocks = layers - 1;
      while (blocks > 0 && device_bytes(keeping(c, blocks)) > device_room())
        --blocks;
      return blocks;
    }
    const Config few = with_layers(c, kFew);
    const auto each = device_bytes(keeping(few, 1)) - device_bytes(few);
    return std::clamp<std::int64_t>((device_room() - device_bytes(c)) / each, 0, layers - 1);
  }

  // For each offload, the mildest recompute that fits, if it is milder than without that offload.
  std::vector<Config> fitting(const Config& layout, std::int64_t micro_batch) const {
    constexpr std::array kAll{Recompute::none, Recompute::cheap, Recompute::block};
    std::vector<Config> found;
    std::optional<Recompute> mildest;
    const auto try_with = [&](const Offloads& offloads) {
      for (const auto recompute : kAll) {
        if (mildest && recompute >= *mildest) return;
        // With less recompute, layers keep more activations than the link can carry in time.
        if (offloads.activations && recompute != Recompute::block) continue;
        const Config c = with_attention(with(layout, micro_batch, recompute, offloads));
        if (!fits(c)) continue;
        mildest = recompute;
        found.push_back(c);
        return;
      }
    };
    try_with({});
    if (!may_offload()) return found;
    try_with({.optimizer = true});
    try_with({.activations = true});
    try_with({.activations = true, .optimizer = true});
    return found;
  }

  static std::string why(const FoundLayout& one, const FoundLayout& best) {
    const double rounding = 1e-9 * best.estimate.time.total();
    double more = one.estimate.time.total() - best.estimate.time.total();
    if (more < rounding) more = 0;
    if (&one == &best) {
      const auto masked = masked_sequences(best.config);
      return str("the fastest layout that fits",
                 masked == 0 ? std::string()
                             : str("; ", masked, " of ", step_split(best.config).computed,
                                   " sequences masked"));
    }
    std::size_t most = 0;
    double most_seconds = -1;
    for (std::size_t i = 0; i < kComponents; ++i) {
      const double part = one.estimate.time.seconds[i] - best.estimate.time.seconds[i];
      if (part > most_seconds) {
        most = i;
        most_seconds = part;
      }
    }
    const auto text = str(difference(one.config, best.config), ": +", human_seconds(more));
    return most_seconds > rounding ? str(text, " (", in_words(static_cast<Component>(most)), " +",
                                         human_seconds(most_seconds), ")")
                                   : text;
  }

  // Configurations that differ from `best` in one setting and need more memory.
  std::vector<Config> milder(const Config& best) const {
    std::vector<Config> all;
    const auto add = [&](auto&& change) {
      Config c = best;
      change(c);
      if (!may_split(c)) c.layout.tensor_chunks = 1;
      if (has_fp8_matmuls(c, c.train.micro_batch)) all.push_back(with_attention(c));
    };
    const auto sizes = micro_batches(base_, best.layout.tensor);
    for (const auto size : sizes)
      if (size > best.train.micro_batch) add([&](Config& c) { c.train.micro_batch = size; });
    for (const auto recompute : {Recompute::none, Recompute::cheap})
      if (recompute < best.train.recompute && !best.train.offload_activations)
        add([&](Config& c) { c.train.recompute = recompute; });
    for (const auto sharding : {Sharding::optimizer, Sharding::gradients, Sharding::weights})
      if (sharding < best.layout.sharding && best.layout.shard > 1)
        add([&](Config& c) {
          c.layout.sharding = sharding;
          c.layout.keep_gathered = 0;
        });
    if (best.train.offloads())
      add([&](Config& c) { c.train.offload_activations = c.train.offload_optimizer = false; });
    if (best.layout.shard % 2 == 0)
      add([&](Config& c) {
        c.layout.shard /= 2;
        c.layout.replicate *= 2;
      });
    if (best.layout.tensor % 2 == 0)
      add([&](Config& c) {
        c.layout.tensor /= 2;
        c.layout.shard *= 2;
      });
    return all;
  }

  std::vector<MissedLayout> estimated(const std::vector<Config>& configs, ThreadPool& pool) const {
    std::vector<MissedLayout> misses(configs.size());
    pool.run(std::ssize(configs), [&](std::int64_t i, int /*thread*/) {
      auto& miss = misses[static_cast<std::size_t>(i)];
      miss.config = configs[static_cast<std::size_t>(i)];
      const auto found = estimate(miss.config, cluster_);
      miss.missing_bytes = found.missing_bytes();
      miss.missing_host_bytes = found.missing_host_bytes();
      miss.step_seconds = found.time.total();
    });
    return misses;
  }

  // "3.1 GiB too much".
  static std::string too_much(const MissedLayout& one) {
    const bool is_host = one.missing_bytes == 0;
    const auto bytes = is_host ? one.missing_host_bytes : one.missing_bytes;
    return str(human_memory(static_cast<double>(bytes)), " too much",
               is_host ? " for the host" : "");
  }

  std::vector<MissedLayout> misses_near(const FoundLayout& best, ThreadPool& pool) const {
    auto misses = estimated(milder(best.config), pool);
    const double fastest = best.estimate.time.total();
    std::erase_if(misses, [&](const MissedLayout& one) {
      return one.missing_bytes + one.missing_host_bytes <= 0 || one.step_seconds >= fastest;
    });
    std::ranges::stable_sort(misses, {}, &MissedLayout::missing_bytes);
    for (auto& one : misses)
      one.why = str(difference(one.config, best.config), ": ", too_much(one), ", for ",
                    human_seconds(fastest - one.step_seconds), " less");
    return misses;
  }

  Config base_;
  const Cluster& cluster_;
  Device device_;
  MemoryRoom room_;
  DomainMap launched_;
  std::mutex mutex_;
  std::vector<Priced> priced_;
  std::vector<Config> too_large_;
};

// Doubles the number of ranks until a layout fits.
void try_more_nodes(Config config, Cluster cluster, LayoutSearch& found) {
  while (found.fitting_nodes == 0 && (config.layout.ranks *= 2) <= kMostPlannedRanks) {
    cluster.nodes = static_cast<int>(divide_up(config.layout.ranks, cluster.ranks_per_node));
    found.tried_nodes = cluster.nodes;
    if (Search(config, cluster).has_room()) found.fitting_nodes = cluster.nodes;
  }
}

}  // namespace

LayoutSearch search_layouts(const Config& config, const Cluster& cluster, int threads,
                            std::size_t most) {
  auto found = Search(config, cluster).run(threads, most);
  if (found.best.empty()) try_more_nodes(config, cluster, found);
  return found;
}

std::string layout_in_words(const Config& c) {
  const auto& l = c.layout;
  return str("replicate ", l.replicate, " x shard ", l.shard, " x tensor ", l.tensor,
             l.shard > 1 ? str(", sharding ", name(l.sharding)) : "",
             l.tensor > 1 && l.tensor_chunks > 1 ? str(", tensor_chunks ", l.tensor_chunks) : "",
             l.keep_gathered > 0 ? str(", keep_gathered ", l.keep_gathered) : "", ", micro-batch ",
             c.train.micro_batch, ", ", in_words(c.train.recompute),
             c.train.offloads() ? ", " + offload_in_words(c.train) : "");
}

}  // namespace lockstep
