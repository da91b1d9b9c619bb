#include "dist/volume.h"

#include <algorithm>

#include "core/integer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFp32Bytes = 4;

// The symbols of docs/parallelism.md.
struct Symbols {
  std::int64_t r, d, t, W;  // ranks of replicate, shard, tensor; all ranks
  std::int64_t m, L;        // micro-batches, layers
  std::int64_t k;           // chunks of the tokens
  std::int64_t x;           // bytes of a tensor rank's slice of a chunk of the residual stream
  std::int64_t e;           // bytes of an element of the weights
};

Symbols symbols_of(const StepShape& s) {
  const auto ranks = [&](Axis axis) { return std::int64_t{s.mesh.size(axis)}; };
  const auto t = ranks(Axis::tensor), e = bytes_per_element(s.type);
  return {.r = ranks(Axis::replicate),
          .d = ranks(Axis::shard),
          .t = t,
          .W = s.mesh.world(),
          .m = s.micro_batches,
          .L = s.layers,
          .k = s.tensor_chunks,
          .x = divide_up(s.tokens, t) / s.tensor_chunks * s.width * e,
          .e = e};
}

class Terms {
 public:
  // Adds `calls` calls with `bytes` received in each.
  void add(const char* name, Group group, Collective kind, std::int64_t calls, std::int64_t bytes) {
    add(name, group, kind, Communicator::Traffic{calls, calls * bytes});
  }
  void add(const char* name, Group group, Collective kind, Communicator::Traffic traffic) {
    if (traffic.calls > 0) terms.push_back({name, group, kind, traffic});
  }

  std::vector<VolumeTerm> terms;
};

// Bytes received in an all-reduce of `bytes` over p ranks.
std::int64_t reduced(std::int64_t p, std::int64_t bytes) {
  return 2 * (p - 1) * bytes / p;
}

void add_tokens(Terms& terms, const StepShape& s) {
  const auto q = symbols_of(s);
  if (q.t == 1) return;
  const auto slices = (q.t - 1) * q.x;
  const auto exchange = [&](const char* name, std::int64_t gathers, std::int64_t sums) {
    terms.add(name, Group::tensor, Collective::all_gather, q.m * q.k * gathers, slices);
    terms.add(name, Group::tensor, Collective::all_to_all, q.m * q.k * sums, slices);
  };
  exchange("layers forward", 2 * q.L, 2 * q.L);
  exchange("layers backward", 4 * q.L, 2 * q.L);
  if (s.recomputes_blocks) exchange("layers again", 2 * q.L, q.L);
  exchange("embedding", 1, 1);
  exchange("head", 1, 1);
  terms.add("cross-entropy", Group::tensor, Collective::all_gather,
            {q.m * s.loss_chunks, q.m * (q.t - 1) * 3 * kFp32Bytes * s.tokens});
  if (s.scales > 0)
    terms.add("fp8 scales", Group::tensor, Collective::all_gather,
              q.m * q.L * (s.recomputes_blocks ? 15 : 12), (q.t - 1) * kFp32Bytes);
}

// Number of times that a step with divided weights gathers layer l of n layers, of which two are
// whole at a time.
std::int64_t gathers_of_layer(std::int64_t l, std::int64_t n, std::int64_t m) {
  const auto forward = l < 2 ? 1 : m;  // the first two remain from the previous backward
  const auto backward = l < n - 2 ? m : 0;
  return forward + backward;
}

void add_weights(Terms& terms, const StepShape& s) {
  const auto q = symbols_of(s);
  if (q.d == 1) return;
  Communicator::Traffic layers, ends, kept;
  const auto n = std::count_if(s.units.begin(), s.units.end(),
                               [](const auto& unit) { return unit.keep == Keep::layers; });
  std::int64_t l = 0;
  for (const auto& unit : s.units) {
    const bool is_layer = unit.keep == Keep::layers;
    const bool once = !divides_weights(s.sharding) || unit.keep == Keep::own;
    const auto times = once ? 1 : is_layer ? gathers_of_layer(l, n, q.m) : q.m;
    auto& traffic = once ? kept : is_layer ? layers : ends;
    l += is_layer ? 1 : 0;
    traffic.calls += times;
    traffic.bytes += times * (q.d - 1) * (unit.elements / q.d) * q.e;
  }
  terms.add("weights of layers", Group::gathers, Collective::all_gather, layers);
  terms.add("weights of embedding and head", Group::gathers, Collective::all_gather, ends);
  terms.add("weights once a step", Group::gathers, Collective::all_gather, kept);
}

// Sums of n elements per rank.
struct Sums {
  SumPath path;
  std::int64_t ring_bytes;
  Communicator::Traffic inside{}, across{}, gathered{};

  void add(std::int64_t n, std::int64_t times) {
    const auto I = path.inside, A = path.domains;
    const auto columns = ReduceRing::chunk(path, n, ring_bytes);
    const auto chunks = columns > 0 ? divide_up(n, columns) : 0;
    if (I > 1) inside.calls += times * chunks;
    if (A > 1) across.calls += times * chunks;
    inside.bytes += times * (I - 1) * A * n * bytes_per_element(path.pieces);
    across.bytes += times * (A - 1) * n * bytes_per_element(path.across);
  }
  void add_gathered(std::int64_t n) {
    const auto columns = ReduceRing::gathered_chunk(path, n, ring_bytes);
    gathered.calls += columns > 0 ? divide_up(n, columns) : 0;
    gathered.bytes += (path.inside * path.domains - 1) * n * bytes_per_element(path.gathered);
  }
};

void add_gradients(Terms& terms, const StepShape& s) {
  const auto q = symbols_of(s);
  std::int64_t most = 0;
  for (const auto& unit : s.units)
    most = std::max(most, unit.elements / q.d);
  const auto ring =
      std::max(ReduceRing::memory_bytes(q.d, most), ReduceRing::memory_bytes(q.r, most));
  const auto sums_over = [&](std::int64_t ranks, int inside, bool all) {
    return Sums{SumPath(s.reduce, s.type, inside, ranks / inside, all), ring};
  };
  auto shard = sums_over(q.d, s.shard_inside, false);
  auto replicate = sums_over(q.r, s.replicate_inside, true);
  const bool each = reduces_each_micro_batch(s.sharding);
  const auto least = each || q.d == 1 ? ReduceRing::bucket_elements(q.r) : 1;
  std::int64_t bucket = 0;  // elements
  for (auto unit = s.units.rbegin(); unit != s.units.rend(); ++unit) {
    const auto n = unit->elements / q.d;
    if (q.d > 1) shard.add(n, each ? q.m : 1);
    if (q.r == 1) continue;
    bucket += n;
    if (bucket < least && unit + 1 != s.units.rend()) continue;
    replicate.add(bucket / q.r, 1);
    replicate.add_gathered(bucket / q.r);
    bucket = 0;
  }
  const auto add = [&](const char* name, Group whole, Group inside, Group across,
                       const Sums& sums) {
    if (sums.path.by_library)
      return terms.add(name, whole, Collective::reduce_scatter, sums.inside);
    terms.add(name, inside, Collective::all_to_all, sums.inside);
    terms.add(name, across, Collective::all_to_all, sums.across);
  };
  add("gradients along shard", Group::shard, Group::shard_inside, Group::shard_across, shard);
  add("gradients along replicate", Group::replicate, Group::replicate_inside,
      Group::replicate_across, replicate);
  terms.add("their sums", Group::replicate, Collective::all_gather, replicate.gathered);
}

void add_end(Terms& terms, const StepShape& s) {
  const auto q = symbols_of(s);
  if (q.t > 1) {
    Communicator::Traffic traffic;
    const auto place = s.mesh.coordinate(Axis::shard, s.rank);
    for (const auto& unit : s.units) {
      const auto n = unit.elements / q.d;
      const auto replicated = n - std::clamp<std::int64_t>(unit.split - place * n, 0, n);
      if (replicated == 0) continue;
      ++traffic.calls;
      traffic.bytes += reduced(q.t, replicated * kFp32Bytes);
    }
    terms.add("gradients that all tensor ranks hold", Group::tensor, Collective::all_reduce,
              traffic);
  }
  if (s.scales > 0 && q.W > 1)
    terms.add("fp8 scales of weights", Group::all, Collective::all_reduce, 1,
              reduced(q.W, kFp32Bytes * s.scales));
  if (q.W > 1)
    terms.add("loss, tokens, signal, norm", Group::all, Collective::all_reduce, 4,
              reduced(q.W, kFp32Bytes));
}

}  // namespace

Communicator& group_of(const Comms& comms, Group group) {
  switch (group) {
    case Group::all: return *comms.all;
    case Group::tensor: return *comms.tensor;
    case Group::gathers: return *comms.gathers;
    case Group::shard: return *comms.shard.whole;
    case Group::shard_inside: return *comms.shard.inside;
    case Group::shard_across: return *comms.shard.across;
    case Group::replicate: return *comms.replicate.whole;
    case Group::replicate_inside: return *comms.replicate.inside;
    case Group::replicate_across: return *comms.replicate.across;
    case Group::other: break;
  }
  LOCKSTEP_FAIL("group ", static_cast<int>(group));
}

GroupPlace place_of(const Comms& comms, Group group, const DomainMap* topology) {
  const auto& ranks = group_of(comms, group).ranks();
  return {.ranks = static_cast<int>(ranks.size()),
          .domains = topology == nullptr ? 1 : number_of_domains(*topology, ranks)};
}

std::vector<VolumeTerm> step_volume(const StepShape& step) {
  Terms terms;
  add_tokens(terms, step);
  add_weights(terms, step);
  add_gradients(terms, step);
  add_end(terms, step);
  return terms.terms;
}

Communicator::Traffic sum_of(const std::vector<VolumeTerm>& terms, Group group, Collective kind) {
  Communicator::Traffic sum;
  for (const auto& term : terms)
    if (term.group == group && term.kind == kind) {
      sum.calls += term.traffic.calls;
      sum.bytes += term.traffic.bytes;
    }
  return sum;
}

}  // namespace lockstep
