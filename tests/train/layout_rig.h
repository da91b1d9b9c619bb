// Runs a few steps of a tiny model on a mesh of rank threads and returns the results.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/hash.h"
#include "data/loader.h"
#include "tests/dist/ring_world.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/train/training_rig.h"
#include "train/layout.h"
#include "train/step/host_staging.h"
#include "train/step/state_slices.h"

namespace lockstep::testing {

// ThreadSanitizer takes a minute for some of the layouts. It runs twelve that train for three
// steps. Together they have every sharding, replicas, tensor ranks, two levels of domains,
// recompute, gradient accumulation and fp8. Three more save, load, evaluate and sample.
inline constexpr std::array kUnderThreadSanitizer{
    "pairs/Layouts.trains_as_one_rank_does/gpt2_r2_s1_t1_full_cheap_2_d2",  // sharding none
    "pairs/Layouts.trains_as_one_rank_does/llama3_r1_s2_t1_optimizer_block_4_d0",
    "pairs/Layouts.trains_as_one_rank_does/gpt2_r1_s4_t1_optimizer_cheap_2_d0",
    "pairs/Layouts.trains_as_one_rank_does/gpt2_r1_s2_t1_gradients_none_2_d2",
    "pairs/Layouts.trains_as_one_rank_does/llama3_r2_s2_t1_gradients_none_2_d2",
    "pairs/Layouts.trains_as_one_rank_does/gpt2_r2_s4_t1_weights_none_2_d2",
    "pairs/Layouts.trains_as_one_rank_does/llama3_r1_s1_t2_full_cheap_2_d2",
    "pairs/Layouts.trains_as_one_rank_does/llama3_r1_s4_t1_full_cheap_2_d2",
    "pairs/Layouts.trains_as_one_rank_does/llama3_r2_s1_t2_full_cheap_4_d2",
    "pairs/Layouts.trains_as_one_rank_does/gpt2_r2_s2_t2_optimizer_block_1_d2",
    "some/Fp8Layouts.train_as_one_rank_does/tensor_llama3_r1_s4_t1_full",
    "some/Fp8Layouts.train_as_one_rank_does/block_llama3_r1_s2_t2_full",
    "all/LayoutRuns.resume_bitwise_from_their_checkpoint/r1_s2_t2_full",
    "all/LayoutRuns.evaluate_and_sample_as_one_rank_does/r1_s2_t2_full",
    "all/LayoutReductions.train_as_in_fp32_and_resume_bitwise/r4_s1_t1_full_bf16"};

// A test of one layout or several.
template <class Fixture>
class LayoutTest : public Fixture {
#ifdef __SANITIZE_THREAD__
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const auto name = str(test->test_suite_name(), ".", test->name());
    const auto& names = kUnderThreadSanitizer;
    if (std::find(names.begin(), names.end(), name) == names.end())
      GTEST_SKIP() << "ThreadSanitizer watches other layouts: kUnderThreadSanitizer";
  }
#endif
};
template <class Param>
using LayoutTestWith = LayoutTest<::testing::TestWithParam<Param>>;

struct Layout {
  Mesh mesh = {};
  Sharding sharding = Sharding::full;
  int per_domain = 0;                  // see topology_of_neighbours
  std::vector<int> domain_sizes = {};  // of uneven domains of neighbours
  Reduce reduce = Reduce::fp32;
};

inline std::string name_of(const Layout& layout) {
  const auto& [replicate, shard, tensor] = layout.mesh;
  return str("r", replicate, "_s", shard, "_t", tensor, "_", name(layout.sharding),
             layout.reduce == Reduce::fp32 ? "" : str("_", name(layout.reduce)));
}

// Every layout of 2 to 8 ranks. A replicate axis stands for sharding `none`.
inline std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (const int replicate : {1, 2, 4, 8})
    for (const int shard : {1, 2, 4, 8})
      for (const int tensor : {1, 2, 4, 8}) {
        if (replicate * shard * tensor > 8 || replicate * shard * tensor == 1) continue;
        for (const auto sharding :
             {Sharding::optimizer, Sharding::gradients, Sharding::weights, Sharding::full})
          if (shard > 1 || sharding == Sharding::full)
            layouts.push_back(
                {Mesh{.replicate = replicate, .shard = shard, .tensor = tensor}, sharding});
      }
  return layouts;
}

// Each `per_domain` consecutive ranks are an NVLink domain; 0: all ranks are in one.
inline Topology topology_of_neighbours(int ranks, int per_domain) {
  Topology topology;
  for (int rank = 0; rank < ranks; ++rank)
    topology.domain_of.push_back(per_domain == 0 ? 0 : rank / per_domain);
  return topology;
}

inline Topology topology_of(const Layout& layout) {
  if (layout.domain_sizes.empty())
    return topology_of_neighbours(layout.mesh.world(), layout.per_domain);
  Topology topology;
  for (std::size_t i = 0; i < layout.domain_sizes.size(); ++i)
    topology.domain_of.insert(topology.domain_of.end(),
                              static_cast<std::size_t>(layout.domain_sizes[i]),
                              static_cast<int>(i));
  return topology;
}

// The model has heads that eight tensor ranks divide.
inline TrainingConfig layout_config(Family family) {
  TrainingConfig config = tiny();
  config.model = small_model(family, 32, 8);
  if (family == Family::llama3) {
    config.model.heads = 16;
    config.model.mlp_width = 48;
  }
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = 8;
  return config;
}

// Assembled joins the segments of every rank to whole parameters by name. Each element must be
// present, and equal on all ranks that hold it.
class Assembled {
 public:
  void add(const ParamLayout& layout, const Segment& segment, Tensor flat) {
    const auto& spec = layout.spec(segment.id);
    auto& whole = values_[spec.name];
    if (whole.empty())
      whole.resize(static_cast<std::size_t>(spec.shape.elements()),
                   std::numeric_limits<double>::quiet_NaN());
    const auto at = layout.indices(segment.id);
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const auto j = segment.logical_begin + i;
      auto& element = whole.at(
          static_cast<std::size_t>(at.first + j / at.columns * at.stride + j % at.columns));
      const double value = get(flat, segment.shard_begin + i);
      if (!std::isnan(element)) {
        EXPECT_EQ(element, value) << spec.name << " of two ranks";
      }
      element = value;
    }
  }
  const std::map<std::string, Doubles>& values() const { return values_; }

 private:
  std::map<std::string, Doubles> values_;
};

// Consumed sums hashes of the tokens and targets of sequences. The sum does not depend on their
// order; it changes if a sequence is missing or repeated. Masked sequences do not count.
class Consumed {
 public:
  void add(const Batch& batch) {
    const auto B = batch.inputs.shape[0], T = batch.inputs.shape[1];
    for (std::int64_t b = 0; b < B; ++b) {
      const auto* targets = batch.targets.as<std::int32_t>() + b * T;
      if (std::all_of(targets, targets + T, [](std::int32_t id) { return id < 0; })) continue;
      Hasher hasher;
      for (const ConstTensor t : {batch.inputs, batch.targets, batch.document_start})
        if (t) hasher.add({t.data + b * T * 4, static_cast<std::size_t>(T * 4)});
      sum_ += std::stoull(hasher.hex().substr(0, 16), nullptr, 16);
      ++sequences_;
    }
  }
  void add(const Consumed& other) {
    sum_ += other.sum_;
    sequences_ += other.sequences_;
  }
  std::int64_t sequences() const { return sequences_; }
  friend bool operator==(const Consumed&, const Consumed&) = default;

 private:
  std::uint64_t sum_ = 0;
  std::int64_t sequences_ = 0;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<Consumed> consumed;         // by all ranks together, in each step
  Assembled initial, gradients, weights;  // of the first step; after the last
  std::int64_t tokens = 0;                // valid ones, of the last step
};

inline void expect_the_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights.values(), b.weights.values());
}

// LayoutRank owns the Training of one rank, its stream and its memory.
class LayoutRank {
 public:
  // `dataset`: the source of batches; "": batches are random.
  LayoutRank(const TrainingConfig& config, const Arenas::Bytes& bytes, Comms comms,
             const std::string& dataset = "")
      : config_(config),
        place_(data_place(config.mesh, comms.world->rank())),
        arenas_(Device{}, bytes),
        training_(config, bench_.stream, arenas_, std::move(comms)) {
    if (dataset.empty()) return;
    const Loader::Config data{.sources = {{.paths = {dataset}}},
                              .seed = 3,
                              .sequence_length = static_cast<int>(config.sequence_length),
                              .global_batch_sequences = config.global_batch_sequences,
                              .vocabulary = config.model.vocabulary,
                              .document_mask = true};
    loader_.emplace(data, static_cast<int>(config.micro_batch_sequences), place_.rank, place_.ranks,
                    bench_.arena);
  }

  Training& training() { return training_; }
  Stream& stream() { return bench_.stream; }
  World& world() { return *training_.params().comms().world; }

  int done = 0;                    // steps
  std::vector<Consumed> consumed;  // by this rank, in each step
  Training::Numbers step() {
    training_.begin_step(++done, 1e-3);
    consumed.emplace_back();
    for (std::int64_t m = 0; m < micro_steps(); ++m) {
      const Arena::Scope scope(bench_.arena);
      const auto batch =
          loader_ ? loader_->batch(first_sample_, static_cast<int>(m)) : random_batch(done, m);
      consumed.back().add(batch);
      auto copied = training_.micro_step(batch, m + 1 == micro_steps());
      if (loader_) loader_->release(batch, std::move(copied));
    }
    training_.finish_step();
    first_sample_ += config_.global_batch_sequences;
    return training_.numbers(done);
  }

  LossSum evaluate(int step) {  // on the tokens of a step
    LossSum sum;
    for (std::int64_t m = 0; m < micro_steps(); ++m) {
      const Arena::Scope scope(bench_.arena);
      training_.evaluate(random_batch(step, m));
      const auto part = training_.evaluated();
      sum.loss += part.loss;
      sum.tokens += part.tokens;
    }
    return sum;
  }

  void save(const std::filesystem::path& directory) {
    HostStaging state(state_slices(training_.params(), training_.optimizer()), stream(),
                      HostStaging::Copies::owned);
    state.take();
    state.taken().synchronize();
    Json about;
    about.set("step", done);
    about.set("first_sample", first_sample_);
    Checkpointer(directory, state.slices(), {}, &world()).save(done, about);
  }
  void load(const std::filesystem::path& directory) {
    HostStaging state(state_slices(training_.params(), training_.optimizer()), stream(),
                      HostStaging::Copies::owned);
    state.prepare_to_read();
    const auto about =
        Checkpointer(directory, state.slices(), {}, &world()).load_newest([](const Json&) {});
    done = static_cast<int>(about.value().at("step").as_integer());
    first_sample_ = about.value().at("first_sample").as_integer();
    state.send();
    training_.params().refresh_weights(stream());
  }

 private:
  std::int64_t micro_steps() const {
    const auto at_once = config_.micro_batch_sequences * place_.ranks;
    return (config_.global_batch_sequences + at_once - 1) / at_once;
  }

  // Micro-batch m of the step. On every layout, all ranks together have the same tokens.
  Batch random_batch(int step, std::int64_t m) {
    const auto B = config_.micro_batch_sequences, T = config_.sequence_length,
               S = config_.global_batch_sequences;
    const auto word = [&](std::int64_t i) {
      const auto draw = philox(9, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(i));
      return static_cast<std::int32_t>(draw[0] %
                                       static_cast<std::uint64_t>(config_.model.vocabulary));
    };
    std::vector<std::int32_t> ids, next, place;
    for (std::int64_t b = 0; b < B; ++b) {
      const auto sequence = (m * place_.ranks + place_.rank) * B + b;
      for (std::int64_t t = 0; t < T; ++t) {
        const auto i = sequence * (T + 1) + t;
        // Masks differ from sequence to sequence; sequences after the end of the batch are masked.
        const bool masked = sequence >= S || (sequence % 3 == 1 && t < T / 2);
        ids.push_back(sequence >= S ? 0 : word(i));
        next.push_back(masked ? -1 : word(i + 1));
        place.push_back(static_cast<std::int32_t>(t));
      }
    }
    return {.inputs = bench_.integers(ids, {B, T}),
            .targets = bench_.integers(next, {B, T}),
            .positions = bench_.integers(place, {B, T}),
            .document_start = {}};
  }

  TrainingConfig config_;
  DataPlace place_;
  std::int64_t first_sample_ = 0;  // of the next step
  Bench bench_{.threads = 1, .host_bytes = std::int64_t{16} << 20};
  Arenas arenas_;
  Training training_;
  std::optional<Loader> loader_;
};

// Each rank calls these before and after its steps.
using OnRank = std::function<void(LayoutRank&)>;
struct Around {
  OnRank before = [](LayoutRank& rank) { rank.training().initialize(); };
  OnRank behind = [](LayoutRank&) {};
  std::string dataset = {};
};

inline Outcome train_on(const Layout& layout, TrainingConfig config, int steps,
                        const Around& around = {}) {
  config.mesh = layout.mesh;
  config.sharding = layout.sharding;
  config.reduce = layout.reduce;
  const auto topology = topology_of(layout);
  Outcome outcome;
  std::mutex mutex;
  std::vector<std::vector<Consumed>> consumed(static_cast<std::size_t>(layout.mesh.world()));
  const auto bytes = measure_training(config, Device{}, 1);
  run_thread_ranks(layout.mesh.world(), [&](World& threads) {
    RingWorld world(threads);
    LayoutRank rank(config, bytes, make_comms(world, layout.mesh, &topology, layout.reduce),
                    around.dataset);
    auto& params = rank.training().params();
    const auto gather = [&](Assembled& into, auto&& tensor_of) {
      const std::lock_guard lock(mutex);
      for (auto& shard : params.shards())
        for (const auto& segment : shard.segments)
          into.add(params.layout(), segment, tensor_of(shard));
    };
    const auto weight = [](const ParamShard& s) { return s.master ? s.master : s.weight; };
    around.before(rank);
    gather(outcome.initial, weight);
    for (int i = 0; i < steps; ++i) {
      const auto numbers = rank.step();
      if (i == 0) gather(outcome.gradients, [](const ParamShard& s) { return s.grad; });
      if (world.rank() != 0) continue;
      outcome.losses.push_back(numbers.loss);
      outcome.norms.push_back(numbers.grad_norm);
      outcome.tokens = numbers.valid_tokens;
    }
    gather(outcome.weights, weight);
    consumed[static_cast<std::size_t>(world.rank())] = rank.consumed;
    // All ranks have entered the same number of collectives; a straggler has entered fewer.
    const auto entered = std::to_string(world.ring()->activity().collectives);
    EXPECT_EQ(world.exchange(entered),
              std::vector<std::string>(static_cast<std::size_t>(world.size()), entered));
    around.behind(rank);
  });
  outcome.consumed.resize(static_cast<std::size_t>(steps));
  for (std::size_t rank = 0; rank < consumed.size(); ++rank)
    if (layout.mesh.coordinate(Axis::tensor, static_cast<int>(rank)) > 0)
      EXPECT_EQ(consumed[rank], consumed[rank - 1]) << "tensor ranks";
    else
      for (std::size_t step = 0; step < outcome.consumed.size(); ++step)
        outcome.consumed[step].add(consumed[rank][step]);
  return outcome;
}

// Ranks that load a checkpoint train as the ranks that saved it, or as an uninterrupted run.
enum class Against { the_run_that_saved, an_uninterrupted_run };
inline void expect_a_resume_is_bitwise(const Layout& layout, const TrainingConfig& config,
                                       Against against = Against::the_run_that_saved) {
  const TemporaryDirectory directory;
  const auto save = [&](LayoutRank& rank) {
    rank.training().initialize();
    for (int i = 0; i < 2; ++i)
      rank.step();
    rank.consumed.clear();
    rank.save(directory.path());
  };
  const auto load = [&](LayoutRank& rank) { rank.load(directory.path()); };
  const auto saved = train_on(layout, config, 2, {.before = save});
  const auto loaded = train_on(layout, config, 2, {.before = load});
  EXPECT_EQ(loaded.initial.values(), saved.initial.values());
  expect_the_same_bits(loaded, saved);
  if (against == Against::an_uninterrupted_run) {
    EXPECT_EQ(saved.weights.values(), train_on(layout, config, 4).weights.values());
  }
}

}  // namespace lockstep::testing
