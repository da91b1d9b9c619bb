// rank_calls CONFIG RANKS PER_DOMAIN [KEY=VALUE...] prints the collectives of a step of ranks on
// CPUs, which are threads here. PER_DOMAIN consecutive ranks are an NVLink domain. Each call is a
// line:
//   RANK GROUP CALL ELEMENTS TYPE OTHER STREAM
// GROUP is the number of the group, in the order of creation, from 1. OTHER is the operation or the
// root. Grouped calls are between `RANK GROUP begin` and `RANK GROUP end`.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "launch/config.h"
#include "tests/support/thread_world.h"
#include "train/layout.h"
#include "train/run/run_config.h"
#include "train/step/training.h"

namespace lockstep {
namespace {

// The calls of one rank in the step.
struct Calls {
  std::string text;
  bool in_step = false;
  int groups = 0;
};

class NotedCommunicator final : public Communicator {
 public:
  NotedCommunicator(std::unique_ptr<Communicator> real, std::string prefix, Calls& calls)
      : Communicator(real->name(), real->rank(), real->size()),
        real_(std::move(real)),
        prefix_(std::move(prefix)),
        calls_(calls) {}

 private:
  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) override {
    note("all_reduce", inout, op == ReduceOp::sum ? 0 : 2, stream);
    real_->all_reduce(inout, op, stream);
  }
  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) override {
    note("all_gather", in, 0, stream);
    real_->all_gather(out, in, stream);
  }
  void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) override {
    note("reduce_scatter", out, 0, stream);
    real_->reduce_scatter(out, in, stream);
  }
  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    note("all_to_all", in, 0, stream);
    real_->all_to_all(out, in, stream);
  }
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    note("broadcast", inout, root, stream);
    real_->broadcast(inout, root, stream);
  }
  void do_send(ConstTensor sent, int to, Stream& stream) override {
    note("send", sent, to, stream);
    real_->send(sent, to, stream);
  }
  void do_receive(Tensor received, int from, Stream& stream) override {
    note("receive", received, from, stream);
    real_->receive(received, from, stream);
  }
  void do_barrier(Stream& stream) override { real_->barrier(stream); }
  void begin_group() override { note("begin"); }
  void end_group() override { note("end"); }

  void note(const std::string& call) {
    if (calls_.in_step) calls_.text += prefix_ + call + "\n";
  }
  void note(const char* call, ConstTensor t, int other, const Stream& stream) {
    note(
        str(call, " ", t.elements(), " ", lockstep::name(t.dtype), " ", other, " ", stream.name()));
  }

  std::unique_ptr<Communicator> real_;
  std::string prefix_;
  Calls& calls_;
};

class NotedWorld final : public WorldOver {
 public:
  NotedWorld(World& real, Calls& calls) : WorldOver(real), calls_(calls) {}
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    const auto prefix = str(rank(), " ", ++calls_.groups, " ");
    auto real = under_.connect(group);
    if (real->size() == 1) return real;
    return std::make_unique<NotedCommunicator>(std::move(real), prefix, calls_);
  }

 private:
  Calls& calls_;
};

void step(Training& training, Loader& loader, std::int64_t number) {
  training.begin_step(number, 1e-3);
  for (int m = 0; m < loader.micro_steps(); ++m) {
    const auto batch = loader.batch(0, m);
    loader.release(batch, training.micro_step(batch, m + 1 == loader.micro_steps()));
  }
  training.finish_step();
  training.numbers(number);
}

int run(int count, char** words) {
  const int ranks = std::atoi(words[2]), per_domain = std::atoi(words[3]);
  std::vector<Setting> settings;
  for (int i = 4; i < count; ++i)
    settings.push_back(parse_setting(words[i]));
  const auto config = load_config(words[1], settings, ranks).values;
  const auto mesh = mesh_of(config.layout, ranks);
  Topology topology;
  for (int rank = 0; rank < ranks; ++rank)
    topology.domain_of.push_back(rank / per_domain);
  const auto training_settings = training_config(config);
  const auto bytes = measure_training(training_settings, Device{}, 1);
  std::vector<Calls> calls(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](World& real) {
    Calls& mine = calls[static_cast<std::size_t>(real.rank())];
    NotedWorld world(real, mine);
    Stream compute(Device{}, "compute");
    Arenas arenas(Device{}, bytes);
    Training training(training_settings, compute, arenas,
                      make_comms(world, mesh, &topology, config.layout.reduce));
    training.initialize();
    const auto place = data_place(mesh, real.rank());
    const auto sequences = static_cast<int>(config.train.micro_batch);
    Arena pinned(Device{}, Arena::Memory::host,
                 Loader::pinned_bytes(sequences, static_cast<int>(config.train.sequence_length)));
    LocalFiles files;
    Loader loader(train_loader(config, files), sequences, place.rank, place.ranks, pinned);
    step(training, loader, 1);
    mine.in_step = true;
    step(training, loader, 2);
  });
  for (const auto& one : calls)
    std::fputs(one.text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) {
  try {
    if (count >= 4) return lockstep::run(count, words);
    std::fprintf(stderr, "usage: rank_calls CONFIG RANKS PER_DOMAIN [KEY=VALUE...]\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank_calls: %s\n", error.what());
  }
  return 1;
}
