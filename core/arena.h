// Arena is one block of memory, allocated in order and freed in reverse order. A training step
// allocates no other memory. Arena::measure() returns addresses without memory and only counts
// bytes. The planner builds the whole model on such an arena, so a plan matches its run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/tensor.h"

namespace lockstep {

// Purpose of memory: the rows of a plan's table. Memory without another purpose is a workspace.
enum class Purpose : std::uint8_t {
  weights,
  master_weights,
  gathered_weights,
  gradients,
  moments,
  activations,
  logits,
  workspaces
};
inline constexpr std::size_t kPurposes = 8;
const char* name(Purpose purpose);

class Arena {
 public:
  enum class Memory : std::uint8_t { device, pinned_host, host };

  // Reserves `capacity_bytes`. On the CPU a page uses memory from its first access; the arena
  // requests huge pages.
  Arena(Device device, Memory memory, std::int64_t capacity_bytes);
  // Uses `memory`, allocated by the caller on `device`.
  Arena(Device device, std::shared_ptr<std::byte> memory, std::int64_t bytes);
  static Arena measure(Device device);  // see peak_bytes(); accessing a tensor faults
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) = delete;

  // Returns a new tensor, aligned to 256 bytes and uninitialised. If it does not fit, throws Error
  // with a table of the largest allocations. When measuring, throws ConfigError above 16 TiB.
  Tensor allocate(std::string_view name, DType dtype, Shape shape);

  Device device() const;
  std::int64_t used_bytes() const;
  std::int64_t peak_bytes() const;
  std::int64_t capacity_bytes() const;

  // Bytes by Purpose at the time of the peak; their sum is peak_bytes().
  std::array<std::int64_t, kPurposes> peak_by_purpose() const;

  // For sets the purpose of all allocations during its lifetime.
  class For {
   public:
    For(Arena& arena, Purpose purpose);
    ~For();
    For(const For&) = delete;
    For& operator=(const For&) = delete;

   private:
    Arena& arena_;
    Purpose outer_;
  };

  // Scope frees, on destruction, everything allocated since its construction. Debug builds fill the
  // memory with NaN bit patterns, so that use of a tensor after its scope is noticed.
  class Scope {
   public:
    explicit Scope(Arena& arena);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::int64_t mark_;
    std::int64_t names_;
  };

 private:
  struct State;
  explicit Arena(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Arenas of a program: device memory, and pinned host memory for copies to and from the device. On
// the CPU the pinned arena is almost unused.
struct Arenas {
  struct Bytes {
    std::int64_t device = 0, pinned = 0;
  };
  Arena device, pinned;

  // `memory`: device memory that was already allocated, or nullptr
  Arenas(Device on, const Bytes& bytes, std::shared_ptr<std::byte> memory = nullptr)
      : device(memory ? Arena(on, std::move(memory), bytes.device)
                      : Arena(on, Arena::Memory::device, bytes.device)),
        pinned(on, Arena::Memory::pinned_host, bytes.pinned) {}
  static Arenas measure(Device on) { return {Arena::measure(on), Arena::measure(Device{})}; }
  Bytes peak() const { return {device.peak_bytes(), pinned.peak_bytes()}; }

 private:
  Arenas(Arena device_arena, Arena pinned_arena)
      : device(std::move(device_arena)), pinned(std::move(pinned_arena)) {}
};

}  // namespace lockstep
