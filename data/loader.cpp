#include "data/loader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>

#include "core/integer.h"
#include "core/start_thread.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

struct Position {
  std::int64_t first_sample = 0;
  int micro_step = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

enum class State : std::uint8_t { free, filling, ready, held };

// A buffer. `ticket` numbers the batches since the last jump; `generation` numbers the jumps.
struct Buffer {
  Tensor inputs, targets, positions, document_start;
  State state = State::free;
  std::int64_t ticket = 0, generation = 0;
  Event copied;  // done when the last reader of the buffer is done
  std::chrono::steady_clock::time_point free_since;  // time of its release
  std::exception_ptr error;
};

std::span<std::int32_t> row(Tensor tensor, std::int64_t i) {
  return {tensor.as<std::int32_t>() + i * tensor.shape[1],
          static_cast<std::size_t>(tensor.shape[1])};
}

// Scratch of a thread for reading a row: T + 1 tokens, the starts of their documents, and whether
// they count.
struct Scratch {
  std::span<std::int32_t> tokens, document_start;
  std::span<std::uint8_t> mask;
};

// Each tensor is [kThreads, T + 1].
struct AllScratch {
  Tensor tokens, document_start, mask;

  Scratch of(std::int64_t thread) const {
    const auto n = mask.shape[1];
    return {row(tokens, thread),
            row(document_start, thread),
            {mask.as<std::uint8_t>() + thread * n, static_cast<std::size_t>(n)}};
  }
};

AllScratch allocate_buffers(Arena& pinned, std::int64_t B, std::int64_t T,
                            std::span<Buffer> buffers) {
  const auto scratch = [&](DType type) {
    return pinned.allocate("loader scratch", type, {Loader::kThreads, T + 1});
  };
  const AllScratch all{scratch(DType::int32), scratch(DType::int32), scratch(DType::uint8)};
  for (auto& buffer : buffers)
    for (Tensor* t : {&buffer.inputs, &buffer.targets, &buffer.positions, &buffer.document_start})
      *t = pinned.allocate("loader batch", DType::int32, {B, T});
  return all;
}

// Number of shards of each dataset: two groups of shuffled shards; for rows in order, the current
// and the next shard; else all.
std::int64_t shards_in_use(const Loader::Config& c) {
  if (!c.shuffle) return 2;
  return c.shuffle_shards > 0 ? 2 * c.shuffle_shards : std::numeric_limits<std::int32_t>::max();
}

}  // namespace

// Threads claim tickets in order and fill any free buffer; batch() returns tickets in order. A jump
// discards the batches read ahead. Ready buffers become free at once, buffers in use by a thread
// when it is done.
struct Loader::Impl {
  Impl(const Config& c, Sources opened, int sequences, int data_rank, int data_ranks,
       Arena& pinned);
  ~Impl();

  Position position_of(std::int64_t ticket) const;
  void start_at(const Position& position);
  void stop();
  Buffer* next_ready();
  void serve(const Scratch& mine);
  void look_ahead();
  void fill(const Buffer& buffer, const Position& position, const Scratch& mine) const;
  void fill_row(const Buffer& buffer, std::int64_t i, const Sources::Place& place,
                const Scratch& mine) const;

  const Config config;
  Sources sources;
  const int rows, rank, ranks;
  bool document_mask = false;
  std::int64_t samples = 0;
  int micro_steps = 0;
  AllScratch scratch;

  std::mutex mutex;
  std::condition_variable became_free, became_ready;
  std::array<Buffer, kBuffers> buffers;
  Position base;             // of ticket 0
  std::int64_t to_read = 0;  // the next ticket that a thread claims
  std::int64_t to_give = 0;  // the next ticket that batch() gives
  std::int64_t generation = 0;
  bool stopping = false;
  double waited_seconds = 0;
  bool is_distant = false;  // any source is remote
  std::mutex looking;       // protects the members below
  std::vector<Sources::Shard> ahead;
  std::vector<std::thread> threads;
};

Loader::Impl::Impl(const Config& c, Sources opened, int sequences, int data_rank, int data_ranks,
                   Arena& pinned)
    : config(c), sources(std::move(opened)), rows(sequences), rank(data_rank), ranks(data_ranks) {
  const std::int64_t B = sequences, T = c.sequence_length, S = c.global_batch_sequences;
  LOCKSTEP_CHECK(B >= 1 && T >= 1 && S >= 1, "batches of ", S, " sequences of ", T,
                 " tokens in micro-batches of ", B);
  LOCKSTEP_CHECK(0 <= data_rank && data_rank < data_ranks, "data rank ", data_rank, " of ",
                 data_ranks);
  document_mask = c.document_mask || sources.row_kind() == RowKind::packed;
  for (std::size_t s = 0; s < sources.count(); ++s)
    is_distant = is_distant || sources.dataset(s).is_distant();
  samples = sources.total_rows();
  micro_steps = static_cast<int>(micro_steps_of(S, B, ranks));
  if (c.most_samples > 0) samples = std::min(samples, c.most_samples);
  scratch = allocate_buffers(pinned, B, T, buffers);
  threads.reserve(kThreads);
  if (is_distant && !c.shuffle) look_ahead();  // the start is known
}

Loader::Impl::~Impl() {
  stop();
}

// Stops the threads; the next batch() starts them again.
void Loader::Impl::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  became_free.notify_all();
  for (auto& thread : threads)
    thread.join();
  threads.clear();
  stopping = false;
  if (!ahead.empty()) config.files->set_ahead(this, {});
  ahead.clear();
}

Position Loader::Impl::position_of(std::int64_t ticket) const {
  const auto micro = base.micro_step + ticket;
  return {base.first_sample + micro / micro_steps * config.global_batch_sequences,
          static_cast<int>(micro % micro_steps)};
}

void Loader::Impl::start_at(const Position& position) {
  base = position;
  to_read = to_give = 0;
  ++generation;
  for (auto& buffer : buffers)
    if (buffer.state == State::ready) buffer.state = State::free;
  for (auto thread = static_cast<std::int64_t>(threads.size()); thread < kThreads; ++thread)
    threads.push_back(start_thread([this, thread] { serve(scratch.of(thread)); }));
  became_free.notify_all();
}

Buffer* Loader::Impl::next_ready() {
  for (auto& buffer : buffers)
    if (buffer.state == State::ready && buffer.ticket == to_give) return &buffer;
  return nullptr;
}

void Loader::Impl::serve(const Scratch& mine) {
  use_all_processors();
  std::unique_lock lock(mutex);
  for (;;) {
    auto free = buffers.end();
    became_free.wait(lock, [&] {
      free = std::find_if(buffers.begin(), buffers.end(),
                          [](const Buffer& b) { return b.state == State::free; });
      return stopping || free != buffers.end();
    });
    if (stopping) return;
    Buffer& buffer = *free;
    buffer.state = State::filling;
    buffer.ticket = to_read++;
    buffer.generation = generation;
    buffer.error = nullptr;
    const auto position = position_of(buffer.ticket);
    lock.unlock();
    std::exception_ptr error;
    try {
      buffer.copied.synchronize();
      buffer.free_since = std::chrono::steady_clock::now();
      if (is_distant) look_ahead();
      fill(buffer, position, mine);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    buffer.error = error;
    buffer.state = buffer.generation == generation ? State::ready : State::free;
    became_ready.notify_all();
  }
}

// Fetches the shards that are read next, and closes those that are not read any more. It starts a
// step or two before the next batch, because other ranks of the host may still read those shards.
void Loader::Impl::look_ahead() {
  constexpr std::int64_t kSteps = 2, kMostOfAll = 1024;
  const std::unique_lock only(looking, std::try_to_lock);
  if (!only) return;
  const auto from = [&] {
    const std::lock_guard lock(mutex);
    return std::max(position_of(to_give).first_sample - kSteps * config.global_batch_sequences,
                    base.first_sample);
  }();
  const auto of_each = std::max(kMostOfAll / std::ssize(config.sources), std::int64_t{1});
  const auto most = static_cast<std::size_t>(std::min(shards_in_use(config), of_each));
  auto next = config.shuffle ? sources.shards_ahead(from, most)
                             : sources.shards_in_order(from, samples, most);
  if (next == ahead) return;
  ahead = std::move(next);
  std::vector<std::string> files;
  for (const auto& [source, shard] : ahead)
    for (auto& file : sources.dataset(source).files_of(shard))
      files.push_back(std::move(file));
  config.files->set_ahead(this, files);
  for (std::size_t s = 0; s < sources.count(); ++s) {
    std::vector<std::size_t> kept;
    for (const auto& [source, shard] : ahead)
      if (source == s) kept.push_back(shard);
    sources.dataset(s).keep_open(kept);
  }
}

void Loader::Impl::fill(const Buffer& buffer, const Position& position, const Scratch& mine) const {
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto in_batch = (std::int64_t{position.micro_step} * ranks + rank) * rows + i;
    const auto g = position.first_sample + in_batch;
    const bool masked =
        in_batch >= config.global_batch_sequences || (!config.repeat && g >= samples);
    if (masked) {
      std::ranges::fill(row(buffer.inputs, i), 0);
      std::ranges::fill(row(buffer.targets, i), -1);
    } else {
      fill_row(buffer, i, sources.at(g), mine);
    }
    const auto start = row(buffer.document_start, i), positions = row(buffer.positions, i);
    if (masked || !document_mask) std::ranges::fill(start, 0);
    for (std::size_t t = 0; t < start.size(); ++t)
      positions[t] = static_cast<std::int32_t>(t) - start[t];
  }
}

void Loader::Impl::fill_row(const Buffer& buffer, std::int64_t i, const Sources::Place& place,
                            const Scratch& mine) const {
  const auto& dataset = sources.dataset(place.source);
  const auto first = place.row.first;
  const auto n = static_cast<std::size_t>(place.row.tokens);
  const auto tokens = mine.tokens.first(n + 1);
  dataset.read(tokens, first, config.vocabulary);
  const auto inputs = row(buffer.inputs, i), targets = row(buffer.targets, i);
  std::fill(std::copy_n(tokens.begin(), n, inputs.begin()), inputs.end(), 0);
  std::fill(std::copy_n(tokens.begin() + 1, n, targets.begin()), targets.end(), -1);
  if (dataset.has_masks()) {
    const auto counts = mine.mask.first(n);
    dataset.read_mask(counts, first + 1);
    for (std::size_t t = 0; t < n; ++t)
      if (counts[t] == 0) targets[t] = -1;
  }
  if (!document_mask) return;
  const auto start = mine.document_start.first(n + 1), starts = row(buffer.document_start, i);
  dataset.find_documents(start, tokens, first);
  std::fill(std::copy_n(start.begin(), n, starts.begin()), starts.end(),
            static_cast<std::int32_t>(n));  // padding is a separate document
  // No document predicts the start of the next one, except its separator token, which ends this
  // one.
  if (sources.row_kind() != RowKind::packed || dataset.format().boundary == Boundary::front) return;
  for (std::size_t t = 0; t < n; ++t)
    if (start[t + 1] == static_cast<std::int32_t>(t) + 1) targets[t] = -1;
}

Sources::Config Loader::sources_of(const Config& c) {
  return {.sources = c.sources,
          .seed = c.seed,
          .sequence_length = c.sequence_length,
          .vocabulary = c.vocabulary,
          .rows = c.rows,
          .shuffle_shards = c.shuffle_shards,
          .shuffle = c.shuffle,
          .files = c.files};
}

Loader::Loader(const Config& config, int sequences, int data_rank, int data_ranks, Arena& pinned)
    : Loader(config, Sources(sources_of(config)), sequences, data_rank, data_ranks, pinned) {}
Loader::Loader(const Config& config, Sources sources, int sequences, int data_rank, int data_ranks,
               Arena& pinned)
    : impl_(std::make_unique<Impl>(config, std::move(sources), sequences, data_rank, data_ranks,
                                   pinned)) {}
Loader::~Loader() = default;

const Sources& Loader::sources() const {
  return impl_->sources;
}
bool Loader::document_mask() const {
  return impl_->document_mask;
}
void Loader::go_on(DataHistory history) {
  impl_->stop();  // batches read ahead have the old history
  impl_->sources.go_on(std::move(history));
}
std::int64_t Loader::micro_steps_of(std::int64_t step_sequences, std::int64_t sequences,
                                    std::int64_t data_ranks) {
  return divide_up(step_sequences, sequences * data_ranks);
}

std::int64_t Loader::pinned_bytes(int sequences, int sequence_length) {
  Arena pinned = Arena::measure(Device{});
  std::array<Buffer, kBuffers> buffers;
  allocate_buffers(pinned, sequences, sequence_length, buffers);
  return pinned.peak_bytes();
}
std::int64_t Loader::samples() const {
  return impl_->samples;
}
std::int64_t Loader::step_samples() const {
  return impl_->config.global_batch_sequences;
}

std::int64_t Loader::first_sample_of(std::int64_t first_sample, int micro_step) const {
  return first_sample + (std::int64_t{micro_step} * impl_->ranks + impl_->rank) * impl_->rows;
}

int Loader::micro_steps() const {
  return impl_->micro_steps;
}
double Loader::waited_seconds() const {
  return impl_->waited_seconds;
}

std::int64_t Loader::shards_at_once(const Config& config) {
  return shards_in_use(config) + 1;
}

Batch Loader::batch(std::int64_t first_sample, int micro_step) {
  Impl& s = *impl_;
  LOCKSTEP_CHECK(first_sample >= 0 && 0 <= micro_step && micro_step < s.micro_steps, "micro-step ",
                 micro_step, " of ", s.micro_steps, " from sample ", first_sample);
  std::unique_lock lock(s.mutex);
  LOCKSTEP_CHECK(std::ranges::count(s.buffers, State::held, &Buffer::state) < kBuffers, "all ",
                 kBuffers, " batches are held; release one first");
  const Position position{first_sample, micro_step};
  if (s.threads.empty() || s.position_of(s.to_give) != position) s.start_at(position);
  Buffer* buffer = s.next_ready();
  if (buffer == nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    s.became_ready.wait(lock, [&] { return (buffer = s.next_ready()) != nullptr; });
    // Time in which a GPU still read the buffer is not time waiting for data.
    const std::chrono::duration<double> waited =
        std::chrono::steady_clock::now() - std::max(begin, buffer->free_since);
    s.waited_seconds += std::max(waited.count(), 0.0);
  }
  ++s.to_give;
  if (buffer->error) {
    buffer->state = State::free;
    s.became_free.notify_one();
    std::rethrow_exception(std::exchange(buffer->error, nullptr));
  }
  buffer->state = State::held;
  return {buffer->inputs, buffer->targets, buffer->positions,
          s.document_mask ? buffer->document_start : ConstTensor{},
          static_cast<int>(buffer - s.buffers.data())};
}

void Loader::release(const Batch& batch, Event copied) {
  Impl& s = *impl_;
  {
    const std::lock_guard lock(s.mutex);
    LOCKSTEP_CHECK(0 <= batch.buffer && batch.buffer < kBuffers, "buffer ", batch.buffer);
    auto& buffer = s.buffers[static_cast<std::size_t>(batch.buffer)];
    LOCKSTEP_CHECK(buffer.state == State::held, "batch ", batch.buffer, " is released twice");
    buffer.copied = std::move(copied);
    buffer.state = State::free;
  }
  s.became_free.notify_one();
}

}  // namespace lockstep
