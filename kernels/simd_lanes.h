// Lanes<T, N> is a vector of N numbers in registers. GCC's vector extension takes any N, but keeps
// vectors wider than a register in memory and compares them number by number. So Lanes<T, N> halves
// itself until a half fits: 16 floats are one zmm, two ymm, four xmm or four NEON registers.
// Kernels are written once, for 16 lanes, and sum in the same order on every CPU. Only cpu_begin.h
// includes this file, for one instruction set at a time.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

#define LOCKSTEP_INLINE static inline __attribute__((always_inline, unused))

#if LOCKSTEP_CPU_LEVEL >= 2
inline constexpr std::size_t kRegisterBytes = 64;
#elif LOCKSTEP_CPU_LEVEL == 1
inline constexpr std::size_t kRegisterBytes = 32;
#else
inline constexpr std::size_t kRegisterBytes = 16;
#endif

template <class T, int N, bool kFits = N * sizeof(T) <= kRegisterBytes>
struct Lanes {
  static constexpr bool kInRegister = true;
  using Vector __attribute__((vector_size(N * sizeof(T)))) = T;
  Vector v;
};
template <class T, int N>
struct Lanes<T, N, false> {
  static constexpr bool kInRegister = false;
  Lanes<T, N / 2> low, high;
};

template <class T, int N>
LOCKSTEP_INLINE Lanes<T, 2 * N> join(Lanes<T, N> low, Lanes<T, N> high) {
  return {low, high};
}

// Applies f to the registers of the arguments, which all have N lanes.
template <class F, class T, int N, class... More>
LOCKSTEP_INLINE auto map(F f, Lanes<T, N> a, More... more) {
  if constexpr (Lanes<T, N>::kInRegister) {
    const auto v = f(a.v, more.v...);
    return Lanes<std::remove_cvref_t<decltype(v[0])>, N>{v};
  } else {
    return join(map(f, a.low, more.low...), map(f, a.high, more.high...));
  }
}

template <class T, int N>
LOCKSTEP_INLINE Lanes<T, N> splat(T x) {
  Lanes<T, N> a{};
  return map([x](auto zero) { return x - zero; }, a);  // and not +, which would lose the sign of -0
}

#define LOCKSTEP_LANES_OPERATOR(op)                                            \
  template <class T, int N>                                                    \
  LOCKSTEP_INLINE auto operator op(Lanes<T, N> a, Lanes<T, N> b) {             \
    return map([](auto x, auto y) { return x op y; }, a, b);                   \
  }                                                                            \
  template <class T, int N>                                                    \
  LOCKSTEP_INLINE auto operator op(Lanes<T, N> a, std::type_identity_t<T> b) { \
    return map([b](auto x) { return x op b; }, a);                             \
  }                                                                            \
  template <class T, int N>                                                    \
  LOCKSTEP_INLINE auto operator op(std::type_identity_t<T> a, Lanes<T, N> b) { \
    return map([a](auto y) { return a op y; }, b);                             \
  }
LOCKSTEP_LANES_OPERATOR(+)
LOCKSTEP_LANES_OPERATOR(-)
LOCKSTEP_LANES_OPERATOR(*)
LOCKSTEP_LANES_OPERATOR(/)
LOCKSTEP_LANES_OPERATOR(&)
LOCKSTEP_LANES_OPERATOR(|)
LOCKSTEP_LANES_OPERATOR(^)
LOCKSTEP_LANES_OPERATOR(<<)
LOCKSTEP_LANES_OPERATOR(>>)
LOCKSTEP_LANES_OPERATOR(<)  // comparisons: 0, or all bits set, in signed integers
LOCKSTEP_LANES_OPERATOR(>)
LOCKSTEP_LANES_OPERATOR(<=)
LOCKSTEP_LANES_OPERATOR(>=)
LOCKSTEP_LANES_OPERATOR(==)
LOCKSTEP_LANES_OPERATOR(!=)
#undef LOCKSTEP_LANES_OPERATOR

template <class T, int N>
LOCKSTEP_INLINE Lanes<T, N> operator-(Lanes<T, N> a) {
  return map([](auto x) { return -x; }, a);
}
template <class T, int N, class B>
LOCKSTEP_INLINE Lanes<T, N>& operator+=(Lanes<T, N>& a, B b) {
  return a = a + b;
}
template <class T, int N, class B>
LOCKSTEP_INLINE Lanes<T, N>& operator*=(Lanes<T, N>& a, B b) {
  return a = a * b;
}

// Returns a in the lanes where the comparison is true, else b.
template <class Mask, class T, int N>
LOCKSTEP_INLINE Lanes<T, N> select(Mask mask, Lanes<T, N> a, Lanes<T, N> b) {
  return map([](auto x, auto y, auto m) { return m ? x : y; }, a, b, mask);
}

// Returns the same bits as lanes of another type.
template <class To, class T, int N>
LOCKSTEP_INLINE auto bits_as(Lanes<T, N> a) {
  constexpr int kCount = static_cast<int>(N * sizeof(T) / sizeof(To));
  if constexpr (Lanes<T, N>::kInRegister)
    return Lanes<To, kCount>{(typename Lanes<To, kCount>::Vector)a.v};
  else
    return join(bits_as<To>(a.low), bits_as<To>(a.high));
}

// Converts the numbers to another type of the same size; fractions are truncated.
template <class To, class T, int N>
LOCKSTEP_INLINE Lanes<To, N> convert_to(Lanes<T, N> a) {
  return map(
      [](auto x) {
        return __builtin_convertvector(x, typename Lanes<To, sizeof x / sizeof(To)>::Vector);
      },
      a);
}

// load_lanes and store_lanes move N numbers from and to memory, without alignment.
template <class L>
LOCKSTEP_INLINE L load_lanes(const void* p) {
  L a;
  if constexpr (L::kInRegister) {
    __builtin_memcpy(&a.v, p, sizeof a.v);
  } else {
    a.low = load_lanes<decltype(a.low)>(p);
    a.high = load_lanes<decltype(a.high)>(static_cast<const char*>(p) + sizeof a.low);
  }
  return a;
}
template <class T, int N>
LOCKSTEP_INLINE void store_lanes(void* p, Lanes<T, N> a) {
  if constexpr (Lanes<T, N>::kInRegister) {
    __builtin_memcpy(p, &a.v, sizeof a.v);
  } else {
    store_lanes(p, a.low);
    store_lanes(static_cast<char*>(p) + sizeof a.low, a.high);
  }
}

// Zipped is [a0 b0 a1 b1 ...]: its first half in low, the second in high.
template <class L>
struct Zipped {
  L low, high;
};
template <class T, int N>
LOCKSTEP_INLINE Zipped<Lanes<T, N>> zip(Lanes<T, N> a, Lanes<T, N> b) {
  if constexpr (!Lanes<T, N>::kInRegister) {
    const auto low = zip(a.low, b.low), high = zip(a.high, b.high);
    return {join(low.low, low.high), join(high.low, high.high)};
  } else if constexpr (N == 8) {
    return {{__builtin_shufflevector(a.v, b.v, 0, 8, 1, 9, 2, 10, 3, 11)},
            {__builtin_shufflevector(a.v, b.v, 4, 12, 5, 13, 6, 14, 7, 15)}};
  } else if constexpr (N == 4) {
    return {{__builtin_shufflevector(a.v, b.v, 0, 4, 1, 5)},
            {__builtin_shufflevector(a.v, b.v, 2, 6, 3, 7)}};
  } else {
    static_assert(N == 2);
    return {{__builtin_shufflevector(a.v, b.v, 0, 2)}, {__builtin_shufflevector(a.v, b.v, 1, 3)}};
  }
}

// Folds all lanes with f in a fixed tree: lanes i and i + N/2, then + N/4, ... + 1.
template <class F, int N>
LOCKSTEP_INLINE float fold(F f, Lanes<float, N> a) {
  if constexpr (!Lanes<float, N>::kInRegister) {
    return fold(f, map(f, a.low, a.high));
  } else if constexpr (N == 16) {
    const Lanes<float, 8> low{__builtin_shufflevector(a.v, a.v, 0, 1, 2, 3, 4, 5, 6, 7)};
    const Lanes<float, 8> high{__builtin_shufflevector(a.v, a.v, 8, 9, 10, 11, 12, 13, 14, 15)};
    return fold(f, map(f, low, high));
  } else if constexpr (N == 8) {
    const Lanes<float, 4> low{__builtin_shufflevector(a.v, a.v, 0, 1, 2, 3)};
    const Lanes<float, 4> high{__builtin_shufflevector(a.v, a.v, 4, 5, 6, 7)};
    return fold(f, map(f, low, high));
  } else {
    const auto pair = f(a.v, __builtin_shufflevector(a.v, a.v, 2, 3, 2, 3));
    return f(pair, __builtin_shufflevector(pair, pair, 1, 1, 1, 1))[0];
  }
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE
