#include "tests/simt/simt.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csetjmp>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "tests/simt/device_memory.h"
#include "tests/simt/order.h"

namespace simt {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr int kWarp = 32;
constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostShared = 227 << 10;
constexpr std::size_t kExchangeBytes = 64;

struct AsyncCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes, from_global;  // what is not from global memory becomes zeros
};

enum class State : std::uint8_t { runnable, at_barrier, in_warp, exited };

struct Fiber {
  Thread thread;
  int index = 0;  // in the block
  State state = State::runnable;
  const char* waits_for = "";
  unsigned mask = 0;
  std::uint32_t clock = 1;
  std::array<std::uint32_t, kWarp> seen{};  // clocks of the lanes that a __syncwarp ordered before
  const void* gives = nullptr;              // to an exchange
  std::size_t given_bytes = 0;
  const std::byte* got = nullptr;
  std::vector<AsyncCopy> open;                // since the last commit
  std::deque<std::vector<AsyncCopy>> groups;  // committed, the oldest first

  jmp_buf resume;
  ucontext_t entry;
  bool started = false;
  std::byte* stack = nullptr;
};

// What lanes gave to the last exchanges. A lane reads when it is its turn again, before which
// others can finish at most one exchange each.
struct Warp {
  alignas(16) std::byte values[2 * kWarp][kWarp][kExchangeBytes];
  std::size_t exchanges = 0;
};

std::string text(Index i) {
  std::ostringstream out;
  out << '(' << i.x << ", " << i.y << ", " << i.z << ')';
  return out.str();
}

class Simulator {
 public:
  void launch(Extent grid, Extent block, std::size_t dynamic_bytes,
              lockstep::FunctionRef<void()> body);
  void copy(void* to, const void* from, std::size_t bytes);

  // Called by the fiber that runs.
  void access(const void* address, std::size_t bytes, bool is_write, const void* caller);
  void in_bounds(const void* address, std::size_t bytes, const char* what, const void* caller);
  void wait_block();
  void wait_warp(unsigned mask, const char* what, bool orders_memory);
  [[noreturn]] void violate(const std::string& what, const void* caller);

  Fiber* current = nullptr;
  std::byte* shared() const { return shared_base_; }
  int syncthreads_sum(int value);
  std::mt19937_64 random{1};
  static void enter();  // of each fiber

 private:
  void run_block();
  void prepare(Fiber& fiber);
  void run(Fiber& fiber);
  void yield();
  void release_block();
  [[noreturn]] void stop();
  std::string deadlock() const;
  Region* find(const void* address);
  void begin_work();
  void copied(const void* address, std::size_t bytes, bool is_write);
  bool ordered(const Stamp& earlier, bool is_shared) const;
  void check(Cell& cell, bool is_write, const Region& region, const void* caller);
  void check_static_shared(const void* address, std::size_t bytes, const void* caller);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_ = std::vector<Warp>(kMostThreads / kWarp);
  std::vector<std::uint32_t> at_barrier_ = std::vector<std::uint32_t>(kMostThreads);
  jmp_buf scheduler_;
  std::size_t threads_ = 0, arrived_ = 0, exited_ = 0;
  int sum_ = 0, sum_result_ = 0;
  std::uint32_t launch_first_ = 1, block_first_ = 1;
  Order& order_ = order();
  lockstep::FunctionRef<void()>* body_ = nullptr;
  std::string violation_;

  std::byte* shared_base_ = nullptr;
  std::unique_ptr<Region> dynamic_shared_, static_shared_;
  std::vector<Variable> variables_;
  std::size_t dynamic_bytes_ = 0;
};

Simulator& simulator() {
  static Simulator s;
  return s;
}

std::string who(const Fiber& f) {
  return "thread " + text(f.thread.thread) + " of block " + text(f.thread.block);
}

void Simulator::enter() {
  auto& s = simulator();
  for (;;) {
    (*s.body_)();
    s.current->state = State::exited;
    ++s.exited_;
    s.yield();
  }
}

// Back to the scheduler; returns when it is this fiber's turn again.
[[gnu::noinline]] void Simulator::yield() {
  if (_setjmp(current->resume) == 0) _longjmp(scheduler_, 1);
}

[[gnu::noinline]] void Simulator::run(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler_) == 0) {
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
  }
  current = nullptr;
}

// Ends the launch: no fiber runs again, and the next block starts on fresh stacks.
void Simulator::stop() {
  for (auto& f : fibers_)
    f->state = State::exited;
  _longjmp(scheduler_, 1);
}

void Simulator::violate(const std::string& what, const void* caller) {
  violation_ = "simt: " + who(*current) + " " + what;
  if (caller != nullptr) violation_ += ", at " + source_line(caller);
  stop();
}

void Simulator::launch(Extent grid, Extent block, std::size_t dynamic_bytes,
                       lockstep::FunctionRef<void()> body) {
  const auto threads = block.count();
  if (grid.count() == 0 || threads == 0 || threads > kMostThreads || block.z > 64 ||
      grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647u || dynamic_bytes > kMostShared)
    throw Violation("simt: a launch that no GPU takes");
  if (const auto tls = tls_block(); !static_shared_ || static_shared_->begin() != tls.begin)
    static_shared_ = std::make_unique<Region>(tls.begin, tls.bytes + 1024, true);  // and behind it
  if (!dynamic_shared_) {
    variables_ = thread_local_variables();
    shared_base_ = static_cast<std::byte*>(std::aligned_alloc(1024, 256 << 10));
    dynamic_shared_ = std::make_unique<Region>(shared_base_, 256 << 10, true);
  }
  dynamic_bytes_ = dynamic_bytes;
  body_ = &body;
  threads_ = threads;
  while (fibers_.size() < threads)
    fibers_.push_back(std::make_unique<Fiber>());
  begin_work();

  std::vector<std::uint64_t> blocks(grid.count());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = i;
  std::shuffle(blocks.begin(), blocks.end(), random);
  device_memory().protect(true);
  violation_.clear();
  for (const auto b : blocks) {
    for (std::size_t t = 0; t < threads; ++t) {
      Fiber& f = *fibers_[t];
      const auto u = [](std::uint64_t v) { return static_cast<unsigned>(v); };
      f.thread = {{u(t % block.x), u(t / block.x % block.y), u(t / block.x / block.y)},
                  {u(b % grid.x), u(b / grid.x % grid.y), u(b / grid.x / grid.y)},
                  block,
                  grid};
      f.index = static_cast<int>(t);
      f.state = State::runnable;
      f.clock = 1;
      f.seen.fill(0);
      f.gives = nullptr;
      f.open.clear();
      f.groups.clear();
    }
    run_block();
    block_first_ += static_cast<std::uint32_t>(threads);
    if (!violation_.empty()) break;
  }
  device_memory().protect(false);
  if (violation_.empty()) return;
  for (auto& f : fibers_)
    f->started = false;  // their stacks are of no use any more
  throw Violation(violation_);
}

void Simulator::begin_work() {
  if (block_first_ > 0xc0000000u) throw Violation("simt: out of thread numbers");
  launch_first_ = block_first_;
  order_.threads_begin(launch_first_);
}

// As by one thread.
void Simulator::copy(void* to, const void* from, std::size_t bytes) {
  begin_work();
  device_memory().copy(to, from, bytes);
  copied(from, bytes, false);
  copied(to, bytes, true);
  ++block_first_;
}

void Simulator::copied(const void* address, std::size_t bytes, bool is_write) {
  Region* region = device_memory().region(address);
  if (region == nullptr) return;
  const auto check = [&](const Stamp& earlier, const char* what) {
    if (!ordered(earlier, false))
      throw Violation(std::string("simt: a copy ") + (is_write ? "writes" : "reads") +
                      " what other work " + what + ", and nothing orders the two");
  };
  Cell* cells = region->cells(address);
  for (std::size_t i = 0; i < bytes; ++i) {
    auto& [write, reads] = cells[i];
    check(write, "wrote");
    if (is_write) {
      for (const Stamp& read : reads)
        check(read, "reads");
      write = {block_first_, 1};
    } else {
      reads = {Stamp{block_first_, 1}, reads[0]};
    }
  }
}

[[gnu::noinline]] void Simulator::prepare(Fiber& f) {
  if (f.stack == nullptr)
    f.stack = static_cast<std::byte*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  getcontext(&f.entry);
  f.entry.uc_stack.ss_sp = f.stack;
  f.entry.uc_stack.ss_size = kStackBytes;
  makecontext(&f.entry, &Simulator::enter, 0);
}

void Simulator::run_block() {
  std::fill_n(at_barrier_.begin(), threads_, 0u);
  std::memset(shared_base_, 0xff, dynamic_bytes_);
  arrived_ = exited_ = 0;
  for (std::size_t t = 0; t < threads_; ++t)
    if (!fibers_[t]->started) prepare(*fibers_[t]);
  // Threads in an order that is drawn anew each time round.
  std::vector<int> order(threads_);
  for (std::size_t t = 0; t < threads_; ++t)
    order[t] = static_cast<int>(t);
  while (exited_ < threads_ && violation_.empty()) {
    std::shuffle(order.begin(), order.end(), random);
    bool any = false;
    for (const int t : order) {
      Fiber& f = *fibers_[static_cast<std::size_t>(t)];
      if (f.state != State::runnable) continue;
      any = true;
      run(f);
      if (!violation_.empty()) return;
    }
    if (!any) {
      violation_ = "simt: " + deadlock();
      return;
    }
  }
}

std::string Simulator::deadlock() const {
  const Fiber *waits = nullptr, *other = nullptr;
  for (std::size_t t = 0; t < threads_; ++t)
    if (fibers_[t]->state != State::exited) waits = fibers_[t].get();
  for (std::size_t t = 0; t < threads_; ++t) {
    const Fiber& f = *fibers_[t];
    const bool of_warp = f.index / kWarp == waits->index / kWarp;
    if (waits->state == State::in_warp && (!of_warp || (waits->mask >> f.index % kWarp & 1) == 0))
      continue;
    if (f.state != waits->state || f.mask != waits->mask) other = &f;
  }
  std::string what = who(*waits) + " waits at " + waits->waits_for;
  if (other == nullptr) return what + " for ever: its mask names lanes that are not there";
  what += ", which " + who(*other) + " never reaches: it ";
  return what + (other->state == State::exited ? std::string("has ended")
                                               : "waits at " + std::string(other->waits_for));
}

void Simulator::release_block() {
  for (std::size_t t = 0; t < threads_; ++t) {
    Fiber& f = *fibers_[t];
    at_barrier_[t] = f.clock++;
    f.state = State::runnable;
  }
  arrived_ = 0;
  sum_result_ = sum_;
  sum_ = 0;
}

void Simulator::wait_block() {
  current->waits_for = "__syncthreads";
  current->mask = 0;
  current->state = State::at_barrier;
  if (++arrived_ == threads_) release_block();
  yield();
}

int Simulator::syncthreads_sum(int value) {
  sum_ += value;
  wait_block();
  return sum_result_;
}

void Simulator::wait_warp(unsigned mask, const char* what, bool orders_memory) {
  const int lane = current->index % kWarp;
  if ((mask >> lane & 1) == 0)
    violate(std::string("calls ") + what + " without itself in the mask", nullptr);
  current->waits_for = what;
  current->mask = mask;
  current->state = State::in_warp;
  const auto first = static_cast<std::size_t>(current->index / kWarp * kWarp);
  unsigned here = 0;
  for (std::size_t l = 0; l < kWarp && first + l < threads_; ++l) {
    const Fiber& f = *fibers_[first + l];
    if ((mask >> l & 1) == 0 || f.state != State::in_warp) continue;
    if (f.mask != mask || std::strcmp(f.waits_for, what) != 0) {
      if ((f.mask >> lane & 1) != 0)
        violate(std::string("calls ") + what + " while " + who(f) + " waits for it at " +
                    f.waits_for + (f.mask != mask ? " with another mask" : ""),
                nullptr);
      continue;
    }
    here |= 1u << l;
  }
  if (here == mask) {
    auto& warp = warps_[first / kWarp];
    auto& values = warp.values[warp.exchanges++ % std::size(warp.values)];
    std::array<std::uint32_t, kWarp> joined{};
    for (std::size_t l = 0; l < kWarp; ++l) {
      if ((mask >> l & 1) == 0) continue;
      Fiber& f = *fibers_[first + l];
      f.state = State::runnable;
      if (f.gives != nullptr) std::memcpy(values[l], f.gives, f.given_bytes);
      f.gives = nullptr;
      f.got = &values[0][0];
      if (!orders_memory) continue;
      f.seen[l] = f.clock++;
      for (std::size_t k = 0; k < kWarp; ++k)
        joined[k] = std::max(joined[k], f.seen[k]);
    }
    if (orders_memory)
      for (std::size_t l = 0; l < kWarp; ++l)
        if ((mask >> l & 1) != 0) fibers_[first + l]->seen = joined;
  }
  yield();
}

// Whether what `earlier` did comes before what the current thread does now.
bool Simulator::ordered(const Stamp& earlier, bool is_shared) const {
  if (is_shared && earlier.thread < block_first_) return true;
  if (earlier.thread < launch_first_) return order_.is_before(earlier.thread);
  if (earlier.thread < block_first_) return false;
  const auto other = earlier.thread - block_first_;
  const auto me = static_cast<std::uint32_t>(current->index);
  if (other == me || earlier.clock <= at_barrier_[other]) return true;
  return other / kWarp == me / kWarp && earlier.clock <= current->seen[other % kWarp];
}

void Simulator::check(Cell& cell, bool is_write, const Region& region, const void* caller) {
  const Stamp now{block_first_ + static_cast<std::uint32_t>(current->index), current->clock};
  const auto race = [&](const char* mine, const char* others, const Stamp& stamp) {
    std::ostringstream out;
    out << mine << ' ' << (region.is_shared() ? "shared" : "global") << " memory that ";
    if (stamp.thread >= block_first_)
      out << who(*fibers_[stamp.thread - block_first_]);
    else if (stamp.thread < launch_first_)
      out << "work of another stream";
    else
      out << "a thread of another block";
    out << ' ' << others << ", and nothing orders the two";
    violate(out.str(), caller);
  };
  if (region.is_shared() && !is_write && cell.write.thread < block_first_)
    violate("reads shared memory that no thread of its block wrote", caller);
  if (!ordered(cell.write, region.is_shared()))
    race(is_write ? "writes" : "reads", "wrote", cell.write);
  if (is_write) {
    for (const Stamp& read : cell.reads)
      if (!ordered(read, region.is_shared())) race("writes", "reads", read);
    cell.write = now;
    return;
  }
  auto& [newest, other_warp] = cell.reads;
  const bool same_block = newest.thread >= block_first_;
  if (!same_block || (newest.thread - block_first_) / kWarp != (now.thread - block_first_) / kWarp)
    other_warp = newest;
  newest = now;
}

void Simulator::check_static_shared(const void* address, std::size_t bytes, const void* caller) {
  const auto at =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - static_shared_->begin());
  auto next = std::upper_bound(variables_.begin(), variables_.end(), at,
                               [](std::size_t a, const Variable& v) { return a < v.offset; });
  if (next != variables_.begin()) {
    --next;
    if (at + bytes <= next->offset + next->bytes) return;
  }
  violate("leaves a shared array", caller);
}

// The region of an address, or nullptr: the thread's own stack, constants, the host's memory.
Region* Simulator::find(const void* address) {
  if (dynamic_shared_->holds(address)) return dynamic_shared_.get();
  if (static_shared_->holds(address)) return static_shared_.get();
  return device_memory().region(address);
}

void Simulator::in_bounds(const void* address, std::size_t bytes, const char* what,
                          const void* caller) {
  Region* region = find(address);
  if (region == nullptr) return;
  const auto* begin = static_cast<const std::byte*>(address);
  const auto fail = [&](const std::string& where) {
    violate(std::string(what) + ' ' + std::to_string(bytes) + " bytes " + where, caller);
  };
  if (region == static_shared_.get()) {
    check_static_shared(address, bytes, caller);
  } else if (region == dynamic_shared_.get()) {
    if (begin + bytes > shared_base_ + dynamic_bytes_)
      fail("at " + std::to_string(begin - shared_base_) + " of " + std::to_string(dynamic_bytes_) +
           " bytes of shared memory");
  } else {
    if (!region->is_in_tensor(address, bytes)) fail(region->place_of(address));
  }
  if (reinterpret_cast<std::uintptr_t>(address) % std::min<std::size_t>(bytes, 16) != 0 &&
      (bytes & (bytes - 1)) == 0)
    fail("at an address that is not a multiple of it");
}

void Simulator::access(const void* address, std::size_t bytes, bool is_write, const void* caller) {
  if (current == nullptr) return;  // a launcher, on the host
  const auto* stack = current->stack;
  if (address >= static_cast<const void*>(stack) &&
      address < static_cast<const void*>(stack + kStackBytes))
    return;
  Region* region = find(address);
  if (region == nullptr) return;
  in_bounds(address, bytes, is_write ? "writes" : "reads", caller);
  Cell* cells = region->cells(address);
  for (std::size_t i = 0; i < bytes; ++i)
    check(cells[i], is_write, *region, caller);
}

Fiber& fiber() {
  return *simulator().current;
}

void arrive(const AsyncCopy& c) {
  auto& s = simulator();
  if (c.from_global > 0) s.access(c.from, c.from_global, false, nullptr);
  s.access(c.to, c.bytes, true, nullptr);
  std::memcpy(c.to, c.from, c.from_global);
  std::memset(c.to + c.from_global, 0, c.bytes - c.from_global);
}

std::atomic<std::uint64_t>& device_clock() {
  static std::atomic<std::uint64_t> nanoseconds{0};
  return nanoseconds;
}

}  // namespace

const Thread& self() {
  return fiber().thread;
}

void set_seed(std::uint64_t seed) {
  simulator().random.seed(seed);
}

void launch(Extent grid, Extent block, std::size_t dynamic_shared_bytes,
            lockstep::FunctionRef<void()> body) {
  const std::lock_guard lock(device_mutex());
  simulator().launch(grid, block, dynamic_shared_bytes, body);
  pass_time(1000);
}

void copy(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  simulator().copy(to, from, bytes);
}

void pass_time(std::uint64_t nanoseconds) {
  device_clock() += nanoseconds;
}
std::uint64_t device_nanoseconds() {
  return device_clock();
}

std::byte* dynamic_shared() {
  return simulator().shared();
}
void syncthreads() {
  simulator().wait_block();
}
int syncthreads_count(bool predicate) {
  return simulator().syncthreads_sum(predicate ? 1 : 0);
}
void syncwarp(unsigned mask) {
  simulator().wait_warp(mask, "__syncwarp", true);
}
int lane() {
  return fiber().index % kWarp;
}

Exchange::Exchange(unsigned mask, const char* what, const void* value, std::size_t bytes)
    : mask_(mask), what_(what) {
  Fiber& f = fiber();
  f.gives = value;
  f.given_bytes = std::min(bytes, kExchangeBytes);
  simulator().wait_warp(mask, what, false);
  values_ = f.got;
}

const std::byte* Exchange::of(int lane) const {
  if ((mask_ >> lane & 1) == 0)
    simulator().violate(
        std::string(what_) + " reads lane " + std::to_string(lane) + ", which is not in the mask",
        nullptr);
  return values_ + static_cast<std::size_t>(lane) * kExchangeBytes;
}

void read(const void* address, std::size_t bytes) {
  simulator().access(address, bytes, false, __builtin_return_address(0));
}
void write(void* address, std::size_t bytes) {
  simulator().access(address, bytes, true, __builtin_return_address(0));
}
void atomic(void* address, std::size_t bytes) {
  simulator().in_bounds(address, bytes, "changes", __builtin_return_address(0));
}

void copy_async(void* shared, const void* global, std::size_t bytes, std::size_t from_global) {
  auto& s = simulator();
  if (from_global > 0) s.in_bounds(global, from_global, "copies", __builtin_return_address(0));
  s.access(shared, bytes, true, __builtin_return_address(0));
  std::memset(shared, 0xff, bytes);
  fiber().open.push_back(
      {static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), bytes, from_global});
}

void commit_copies() {
  fiber().groups.push_back(std::move(fiber().open));
  fiber().open.clear();
}

void wait_copies(int groups_in_flight) {
  auto& groups = fiber().groups;
  while (groups.size() > static_cast<std::size_t>(groups_in_flight)) {
    for (const auto& c : groups.front())
      arrive(c);
    groups.pop_front();
  }
}

}  // namespace simt

// What g++ -fsanitize=thread calls before each access.
#define SIMT_ACCESS(kind, is_write, bytes)                                           \
  extern "C" void __tsan_##kind##bytes(void* address) {                              \
    simt::simulator().access(address, bytes, is_write, __builtin_return_address(0)); \
  }                                                                                  \
  extern "C" void __tsan_unaligned_##kind##bytes(void* address) {                    \
    simt::simulator().access(address, bytes, is_write, __builtin_return_address(0)); \
  }
SIMT_ACCESS(read, false, 1)
SIMT_ACCESS(read, false, 2)
SIMT_ACCESS(read, false, 4)
SIMT_ACCESS(read, false, 8)
SIMT_ACCESS(read, false, 16)
SIMT_ACCESS(write, true, 1)
SIMT_ACCESS(write, true, 2)
SIMT_ACCESS(write, true, 4)
SIMT_ACCESS(write, true, 8)
SIMT_ACCESS(write, true, 16)
#undef SIMT_ACCESS
extern "C" void __tsan_read_range(void* address, unsigned long bytes) {
  simt::simulator().access(address, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, unsigned long bytes) {
  simt::simulator().access(address, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
