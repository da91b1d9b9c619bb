#include "tests/simt/simt.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/simt/device_memory.h"
#include "tests/simt/simulator.h"

namespace simt {
namespace {

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

std::atomic<std::size_t> most_shared = 227 << 10;

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

void set_most_shared_bytes(std::size_t bytes) {
  most_shared = bytes;
}
std::size_t most_shared_bytes() {
  return most_shared;
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
