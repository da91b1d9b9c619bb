#include "core/arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;
#ifdef __SANITIZE_THREAD__  // leaves a program little more than 1 TiB of addresses
constexpr std::int64_t kMeasureBytes = std::int64_t{1} << 38;
#else
constexpr std::int64_t kMeasureBytes = std::int64_t{1} << 44;  // 16 TiB of addresses
#endif
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

#ifdef NDEBUG
constexpr bool kPoison = false;
#else
constexpr bool kPoison = true;
#endif

// Checked, because a size that is negative or overflows would hand out memory twice.
std::int64_t bytes_of(std::string_view name, DType dtype, const Shape& shape) {
  std::int64_t bytes = bytes_per_element(dtype);
  for (int i = 0; i < shape.rank; ++i) {
    LOCKSTEP_CHECK(shape[i] >= 0, name, " ", shape, " has a negative size");
    LOCKSTEP_CHECK(!__builtin_mul_overflow(bytes, shape[i], &bytes), name, " ", shape,
                   " has more bytes than 64 bits can count");
  }
  return bytes;
}

double mib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

struct Arena::State {
  Device device;
  bool measuring = false;
  std::byte* mapping = nullptr;
  std::byte* base = nullptr;
  std::int64_t mapped = 0, capacity = 0, used = 0, peak = 0;
  struct Named {
    char name[40];
    std::int64_t bytes;
  };
  std::vector<Named> names;  // live allocations, for the message when one does not fit

  State(Device d, bool measure, std::int64_t bytes)
      : device(d), measuring(measure), capacity(round_up(bytes, kAlignment)) {
    LOCKSTEP_CHECK(bytes >= 0, "arena of ", bytes, " bytes");
    mapped = round_up(bytes, kHugePage) + kHugePage;
    void* p = mmap(nullptr, static_cast<std::size_t>(mapped),
                   measure ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCKSTEP_CHECK(p != MAP_FAILED, "cannot reserve ", mib(bytes),
                   " MiB of memory: ", std::strerror(errno));
    mapping = static_cast<std::byte*>(p);
    const auto address = reinterpret_cast<std::intptr_t>(p);
    base = mapping + (round_up(address, kHugePage) - address);
    if (!measure) madvise(base, static_cast<std::size_t>(mapped - kHugePage), MADV_HUGEPAGE);
    names.reserve(4096);
  }
  ~State() { munmap(mapping, static_cast<std::size_t>(mapped)); }
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

Arena::Arena(Device device, Memory, std::int64_t capacity_bytes)
    : Arena(std::make_unique<State>(device, false, capacity_bytes)) {}

Arena Arena::measure(Device device) {
  return Arena(std::make_unique<State>(device, true, kMeasureBytes));
}

Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;

Tensor Arena::allocate(std::string_view name, DType dtype, Shape shape) {
  State& s = *state_;
  const Tensor t{s.base + s.used, shape, dtype, s.device};
  const auto needed = bytes_of(name, dtype, shape), left = s.capacity - s.used;
  if (s.measuring && needed > left)
    throw ConfigError(str("more than ", human_memory(static_cast<double>(s.capacity)),
                          " of memory would be needed, at last for ", name, " ", shape,
                          "; make the model or the batch smaller"));
  LOCKSTEP_CHECK(needed <= left, "out of memory: ", name, " ", shape, " needs ", mib(needed),
                 " MiB, ", mib(left), " of ", mib(s.capacity),
                 " MiB are left; the largest allocations:", s.table());
  const auto bytes = round_up(needed, kAlignment);
  s.used += bytes;
  s.peak = std::max(s.peak, s.used);
  State::Named named{};
  name.substr(0, sizeof named.name - 1).copy(named.name, sizeof named.name - 1);
  named.bytes = bytes;
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

Arena::Scope::Scope(Arena& arena)
    : arena_(arena),
      mark_(arena.state_->used),
      names_(static_cast<std::int64_t>(arena.state_->names.size())) {}

Arena::Scope::~Scope() {
  State& s = *arena_.state_;
  if (kPoison && !s.measuring)
    std::memset(s.base + mark_, 0xff, static_cast<std::size_t>(s.used - mark_));
  s.used = mark_;
  s.names.resize(static_cast<std::size_t>(names_));
}

}  // namespace lockstep
