#include "core/arena.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "core/gpu.h"
#include "core/integer.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kMeasureBytes = std::int64_t{1} << 44;  // 16 TiB
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

#ifdef NDEBUG
constexpr bool kPoison = false;
#else
constexpr bool kPoison = true;
#endif

// Checks sizes, because a negative or overflowing size would allocate the same memory twice.
std::int64_t bytes_of(std::string_view name, DType dtype, const Shape& shape) {
  std::int64_t bytes = bytes_per_element(dtype);
  for (int i = 0; i < shape.rank; ++i) {
    LOCKSTEP_CHECK(shape[i] >= 0, name, " ", shape, ": negative size");
    LOCKSTEP_CHECK(!__builtin_mul_overflow(bytes, shape[i], &bytes), name, " ", shape,
                   ": size in bytes overflows 64 bits");
  }
  return bytes;
}

// Throws the error of a failed mmap.
[[noreturn]] void cannot_reserve(std::int64_t bytes) {
  const auto why = str("cannot reserve ", human_memory(static_cast<double>(bytes)),
                       " of memory: ", reason(errno));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) throw Error(why);
  throw ConfigError(str(why, "; `ulimit -v` limits the address space of this process to ",
                        human_memory(static_cast<double>(limit.rlim_cur)),
                        ". Raise it, or reduce the model or the batch"));
}

// Addresses for a measuring arena. No program has memory there, so access to a tensor faults, and
// no process limit counts them. Linux does not use 2^52 to 2^55 on x86-64 and aarch64 unless
// requested. Each arena gets the next range.
std::byte* unmapped_addresses() {
  constexpr std::uint64_t kFirst = std::uint64_t{1} << 52;
  constexpr std::uint64_t kRanges = ((std::uint64_t{1} << 55) - kFirst) / kMeasureBytes;
  static std::atomic<std::uint64_t> ranges_given{0};
  return std::bit_cast<std::byte*>(kFirst + ranges_given++ % kRanges * kMeasureBytes);
}

double mib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Block owns the memory of an arena, or the addresses of a measuring arena.
class Block {
 public:
  enum class Source : std::uint8_t { mapped, addresses, pinned, device };

  explicit Block(std::shared_ptr<std::byte> given)
      : base(given.get()), source_(Source::device), given_(std::move(given)) {}
  Block(Source source, std::int64_t capacity) : source_(source) {
    LOCKSTEP_CHECK(capacity >= 0, "invalid arena size: ", capacity, " bytes");
    const auto bytes =  // CUDA has no address for 0 bytes
        std::max(round_up(capacity, kAlignment), kAlignment);
    switch (source) {
      case Source::mapped: map(bytes); return;
      case Source::addresses: base = unmapped_addresses(); return;
      case Source::pinned:
        base = gpu::allocate_pinned(bytes);
        LOCKSTEP_CHECK(base != nullptr, "cannot pin ", mib(bytes), " MiB of host memory");
        return;
      case Source::device:
        base = gpu::allocate(bytes);
        LOCKSTEP_CHECK(base != nullptr, "out of memory: ", mib(bytes), " MiB needed on the GPU, ",
                       mib(gpu::free_bytes()), " MiB are free");
        return;
    }
  }
  ~Block() {
    switch (source_) {
      case Source::mapped: munmap(mapping_, static_cast<std::size_t>(mapped_)); break;
      case Source::addresses: break;
      case Source::pinned: gpu::release_pinned(base); break;
      case Source::device:
        if (!given_) gpu::release(base);
        break;
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool is_on_device() const { return source_ == Source::device; }
  bool is_measuring() const { return source_ == Source::addresses; }

  std::byte* base = nullptr;

 private:
  void map(std::int64_t bytes) {
    mapped_ = round_up(bytes, kHugePage) + kHugePage;
    void* p = mmap(nullptr, static_cast<std::size_t>(mapped_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) cannot_reserve(bytes);
    mapping_ = static_cast<std::byte*>(p);
    const auto address = reinterpret_cast<std::intptr_t>(p);
    base = mapping_ + (round_up(address, kHugePage) - address);
    madvise(base, static_cast<std::size_t>(mapped_ - kHugePage), MADV_HUGEPAGE);
  }

  Source source_;
  std::shared_ptr<std::byte> given_;
  std::byte* mapping_ = nullptr;
  std::int64_t mapped_ = 0;
};

Block::Source source_of(Device device, Arena::Memory memory) {
  if (device.kind == Device::Kind::cpu || memory == Arena::Memory::host)
    return Block::Source::mapped;
  return memory == Arena::Memory::device ? Block::Source::device : Block::Source::pinned;
}

}  // namespace

struct Arena::State {
  Device device;  // device of its tensors
  Block block;
  std::int64_t capacity, gap;
  std::int64_t used = 0, peak = 0;
  Purpose purpose = Purpose::workspaces;
  std::array<std::int64_t, kPurposes> by_purpose{}, peak_by_purpose{};
  bool peak_is_new = false;  // true if the peak is by_purpose, not yet in peak_by_purpose
  struct Named {
    char name[39];
    Purpose purpose;
    std::int64_t bytes;
  };
  std::vector<Named> names;  // live allocations, for the message when one does not fit

  // memory: arguments of Block
  template <class... Memory>
  State(Device d, std::int64_t bytes, Memory&&... memory)
      : device(d),
        block(std::forward<Memory>(memory)...),
        capacity(round_up(bytes, kAlignment)),
        gap(d.kind == Device::Kind::cuda ? gpu::bytes_between_tensors() : 0) {
    names.reserve(4096);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string table() const {
    auto sorted = names;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Named& a, const Named& b) { return a.bytes > b.bytes; });
    std::ostringstream out;
    for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 10); ++i)
      out << "\n  " << std::setw(12) << std::fixed << std::setprecision(1) << mib(sorted[i].bytes)
          << " MiB  " << sorted[i].name;
    return out.str();
  }
};

Arena::Arena(std::unique_ptr<State> state) : state_(std::move(state)) {}

Arena::Arena(Device device, Memory memory, std::int64_t capacity_bytes)
    : Arena(std::make_unique<State>(memory == Memory::device ? device : Device{}, capacity_bytes,
                                    source_of(device, memory), capacity_bytes)) {}

Arena::Arena(Device device, std::shared_ptr<std::byte> memory, std::int64_t bytes)
    : Arena(std::make_unique<State>(device, bytes / kAlignment * kAlignment, std::move(memory))) {}

Arena Arena::measure(Device device) {
  return Arena(
      std::make_unique<State>(device, kMeasureBytes, Block::Source::addresses, kMeasureBytes));
}

Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;

Tensor Arena::allocate(std::string_view name, DType dtype, Shape shape) {
  State& s = *state_;
  const Tensor t{s.block.base + s.used, shape, dtype, s.device};
  const auto needed = bytes_of(name, dtype, shape), left = s.capacity - s.used;
  if (s.block.is_measuring() && needed > left)
    throw ConfigError(str("more than ", human_memory(static_cast<double>(s.capacity)),
                          " of memory are needed (at ", name, " ", shape, ")",
                          "; reduce the model or the batch"));
  LOCKSTEP_CHECK(needed <= left, "out of memory: ", name, " ", shape, " needs ", mib(needed),
                 " MiB, ", mib(left), " of ", mib(s.capacity),
                 " MiB are free; largest allocations:", s.table());
  const auto bytes = round_up(needed, kAlignment) + s.gap;
  if (s.block.is_on_device()) gpu::tensor_begins(t.data, needed);
  s.used += bytes;
  if (s.used > s.peak) {
    s.peak = s.used;
    s.peak_is_new = true;
  }
  State::Named named{};
  name.substr(0, sizeof named.name - 1).copy(named.name, sizeof named.name - 1);
  named.purpose = s.purpose;
  named.bytes = bytes;
  s.by_purpose[static_cast<std::size_t>(s.purpose)] += bytes;
  s.names.push_back(named);
  return t;
}

Device Arena::device() const {
  return state_->device;
}
std::int64_t Arena::used_bytes() const {
  return state_->used;
}
std::int64_t Arena::peak_bytes() const {
  return state_->peak;
}
std::int64_t Arena::capacity_bytes() const {
  return state_->capacity;
}

std::array<std::int64_t, kPurposes> Arena::peak_by_purpose() const {
  return state_->peak_is_new ? state_->by_purpose : state_->peak_by_purpose;
}

Arena::For::For(Arena& arena, Purpose purpose)
    : arena_(arena), outer_(std::exchange(arena.state_->purpose, purpose)) {}

Arena::For::~For() {
  arena_.state_->purpose = outer_;
}

const char* name(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights: return "weights";
    case Purpose::master_weights: return "master_weights";
    case Purpose::gathered_weights: return "gathered_weights";
    case Purpose::gradients: return "gradients";
    case Purpose::moments: return "moments";
    case Purpose::activations: return "activations";
    case Purpose::logits: return "logits";
    case Purpose::workspaces: return "workspaces";
  }
  return "?";
}

Arena::Scope::Scope(Arena& arena)
    : arena_(arena),
      mark_(arena.state_->used),
      names_(static_cast<std::int64_t>(arena.state_->names.size())) {}

Arena::Scope::~Scope() {
  State& s = *arena_.state_;
  if (s.block.is_on_device())
    gpu::tensors_end(s.block.base + mark_, s.used - mark_);
  else if (kPoison && !s.block.is_measuring())
    std::memset(s.block.base + mark_, 0xff, static_cast<std::size_t>(s.used - mark_));
  s.used = mark_;
  if (std::exchange(s.peak_is_new, false)) s.peak_by_purpose = s.by_purpose;
  for (auto i = static_cast<std::size_t>(names_); i < s.names.size(); ++i)
    s.by_purpose[static_cast<std::size_t>(s.names[i].purpose)] -= s.names[i].bytes;
  s.names.resize(static_cast<std::size_t>(names_));
}

}  // namespace lockstep
