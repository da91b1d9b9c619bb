// Arena: one block of memory, handed out in order, given back in reverse. A training step
// allocates nothing else. Arena::measure() hands out addresses that have no memory and only
// counts: the planner builds the whole model on one, so a plan cannot disagree with a run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/tensor.h"

namespace lockstep {

// What memory is for: the rows of a plan's table. What nothing else names are workspaces.
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

  // Reserves `capacity_bytes`. On the CPU a page costs memory from its first touch on; huge pages
  // are asked for.
  Arena(Device device, Memory memory, std::int64_t capacity_bytes);
  // Of memory that another allocated, on `device`.
  Arena(Device device, std::shared_ptr<std::byte> memory, std::int64_t bytes);
  static Arena measure(Device device);  // peak_bytes() is the answer; touching a tensor faults
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) = delete;

  // A new tensor, aligned to 256 bytes, uninitialised. Throws Error with a table of the largest
  // names when it does not fit; when measuring, ConfigError beyond what any machine has.
  Tensor allocate(std::string_view name, DType dtype, Shape shape);

  Device device() const;
  std::int64_t used_bytes() const;
  std::int64_t peak_bytes() const;
  std::int64_t capacity_bytes() const;

  // Of peak_bytes(): what was allocated then, by Purpose.
  std::array<std::int64_t, kPurposes> peak_by_purpose() const;

  // While one lives, what is allocated is for that.
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

  // Gives back, on destruction, everything allocated since construction. Debug builds fill it with
  // signalling values, so that a tensor used after its scope shows.
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

// What a program takes from: the memory of its device, and host memory that the device copies to
// and from. On the CPU little or nothing is taken from the second.
struct Arenas {
  struct Bytes {
    std::int64_t device = 0, pinned = 0;
  };
  Arena device, pinned;

  // `memory`: of the device, where it was allocated already
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
