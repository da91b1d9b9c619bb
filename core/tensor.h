// Tensor is a non-owning, contiguous, row-major view. Copying a Tensor never copies data.
//
// A Tensor is writable, a ConstTensor is read-only, so a signature shows the direction: an output
// is a Tensor, an input is a ConstTensor. An Arena owns the memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"

namespace lockstep {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  std::int16_t index = 0;
  friend bool operator==(Device, Device) = default;
};

struct Shape {
  static constexpr int kMaxRank = 4;
  std::array<std::int64_t, kMaxRank> size{};
  int rank = 0;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) {
    LOCKSTEP_CHECK(sizes.size() <= kMaxRank, "a shape has ", sizes.size(), " dimensions, at most ",
                   kMaxRank, " are supported");
    for (auto s : sizes)
      size[static_cast<std::size_t>(rank++)] = s;
  }
  constexpr std::int64_t operator[](int i) const { return size[static_cast<std::size_t>(i)]; }
  constexpr std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i)
      n *= (*this)[i];
    return n;
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // "[512, 768]"

template <class Byte>  // std::byte or const std::byte
struct TensorView {
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  Byte* data = nullptr;
  Shape shape;
  DType dtype = DType::fp32;
  Device device;

  // Tensor converts to ConstTensor, never back. A template avoids nvcc's warning 554-D.
  template <class Other>
  requires(std::is_same_v<Other, const std::byte> && !std::is_const_v<Byte>)
  operator TensorView<Other>() const {  // NOLINT(google-explicit-constructor)
    return {data, shape, dtype, device};
  }

  std::int64_t elements() const { return shape.elements(); }
  std::int64_t bytes() const { return elements() * bytes_per_element(dtype); }
  explicit operator bool() const { return shape.rank > 0; }  // default: absent

  // Returns the elements as T. Throws if T is not the element type of this tensor.
  template <class T>
  Element<T>* as() const {
    LOCKSTEP_CHECK(dtype_of<T>::value == dtype, "tensor of ", name(dtype), " read as ",
                   name(dtype_of<T>::value));
    return reinterpret_cast<Element<T>*>(data);
  }

  // Returns rows [first, first + count) of dimension 0.
  TensorView rows(std::int64_t first, std::int64_t count) const {
    LOCKSTEP_CHECK(0 <= first && 0 <= count && first + count <= shape[0], "invalid rows [", first,
                   ", ", first + count, ") of ", shape[0]);
    TensorView v = *this;
    v.shape.size[0] = count;
    v.data += shape[0] == 0 ? 0 : first * (bytes() / shape[0]);
    return v;
  }

  // Returns the same elements with another shape.
  TensorView view(Shape other) const {
    LOCKSTEP_CHECK(other.elements() == elements(), "cannot view ", elements(), " elements as ",
                   other);
    TensorView v = *this;
    v.shape = other;
    return v;
  }
};

using Tensor = TensorView<std::byte>;
using ConstTensor = TensorView<const std::byte>;
static_assert(std::is_trivially_copyable_v<Tensor>);

}  // namespace lockstep
