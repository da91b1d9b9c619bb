#include "kernels/elementwise.h"

#include "kernels/check.h"

namespace lockstep {

void fill(Stream& stream, Tensor out, float value) {
  LOCKSTEP_CHECK(out.dtype != DType::fp8_e4m3 && out.dtype != DType::fp8_e5m2, "out is ",
                 name(out.dtype), ", expected any type but fp8");
  const OpLog::Call call(stream, memory_op("fill", out.dtype, {out}));
  LOCKSTEP_DISPATCH(stream, fill(stream, out, value));
}

void fill_integer(Stream& stream, Tensor out, std::int32_t value) {
  check_dtype("out", out, DType::int32);
  const OpLog::Call call(stream, memory_op("fill_integer", out.dtype, {out}));
  LOCKSTEP_DISPATCH(stream, fill_integer(stream, out, value));
}

void convert(Stream& stream, Tensor out, ConstTensor x) {
  if (x.dtype != out.dtype) {
    check_float("x", x);
    check_float("out", out);
  }
  LOCKSTEP_CHECK(x.elements() == out.elements(), "x has ", x.elements(), " elements, out ",
                 out.elements(), ", expected the same number");
  const OpLog::Call call(stream, memory_op("convert", out.dtype, {out, x}));
  LOCKSTEP_DISPATCH(stream, convert(stream, out, x));
}

void random_normal(Stream& stream, Tensor out, const RandomNormal& args) {
  check_float("out", out);
  LOCKSTEP_CHECK(args.first_index >= 0, "first_index is ", args.first_index,
                 ", expected at least 0");
  const OpLog::Call call(stream, memory_op("random_normal", out.dtype, {out}));
  LOCKSTEP_DISPATCH(stream, random_normal(stream, out, args));
}

}  // namespace lockstep
