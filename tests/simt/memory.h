// The memory of simt: regions that kernels may access, and the last accesses to each byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace simt {

// The thread and the time of an access. Threads are numbered through all launches; `clock` counts
// the waits of a thread.
struct Stamp {
  std::uint32_t thread = 0, clock = 0;  // thread 0: none
  bool operator==(const Stamp&) const = default;
};

// A write, and the last reads of two warps.
struct Cell {
  Stamp write;
  std::array<Stamp, 2> reads;
  bool operator==(const Cell&) const = default;
};

// `count` objects of zeros, of which only pages that are touched take memory.
template <class T>
class ZeroPages {
 public:
  explicit ZeroPages(std::size_t count);
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;
  ~ZeroPages();
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

class Region {
 public:
  Region(std::byte* begin, std::size_t bytes, bool is_shared);

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }
  bool is_shared() const { return is_shared_; }
  bool holds(const void* address) const {
    return address >= static_cast<const void*>(begin()) &&
           address < static_cast<const void*>(end());
  }

  Cell* cells(const void* address) const { return cells_.data() + offset(address); }

  // Marks bytes that belong to tensors; at first none do.
  void add_tensor(const std::byte* begin, std::size_t bytes) {
    tensors_[begin] = begin + bytes;
    found_ = {};
  }
  void remove_tensors(const std::byte* begin, std::size_t bytes);  // those that begin there
  bool is_in_tensor(const void* address, std::size_t bytes) const;
  // The position of `address` relative to tensors, for messages.
  std::string place_of(const void* address) const;

 private:
  std::size_t offset(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin_);
  }

  std::byte* begin_;
  std::size_t bytes_;
  bool is_shared_;
  ZeroPages<Cell> cells_;
  std::map<const std::byte*, const std::byte*> tensors_;           // begin, end
  mutable std::pair<const std::byte*, const std::byte*> found_{};  // the last result
};

// The static __shared__ arrays are thread_local variables; those of this program, in its TLS block.
struct Variable {
  std::size_t offset = 0, bytes = 0;  // in the block
};
std::vector<Variable> thread_local_variables();
struct TlsBlock {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
TlsBlock tls_block();  // of the calling thread

// "attention.cu:123" of a return address, where the program has line numbers.
std::string source_line(const void* return_address);

}  // namespace simt
