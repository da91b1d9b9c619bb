#include "kernels/pieces.h"

#include "kernels/check.h"

namespace lockstep {

void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first) {
  check_float("out", out);
  check_float("in", in);
  LOCKSTEP_CHECK(in.shape.rank == 3, "in is ", in.shape, ", expected [A, I, n]");
  LOCKSTEP_CHECK(out.shape.rank == 3 && out.shape[0] == in.shape[1] && out.shape[1] == in.shape[0],
                 "out is ", out.shape, ", expected [", in.shape[1], ", ", in.shape[0], ", m]");
  LOCKSTEP_CHECK(0 <= first && first + out.shape[2] <= in.shape[2], "columns ", first, "+",
                 out.shape[2], " of in, which has ", in.shape[2]);
  const OpLog::Call call(stream, memory_op("pack_pieces", out.dtype, {out, out}));
  LOCKSTEP_DISPATCH(stream, pack_pieces(stream, out, in, first));
}

void sum_pieces(Stream& stream, const SumPieces& args) {
  const auto n = args.out.elements();
  check_float("out", args.out);
  check_float("pieces", args.pieces);
  LOCKSTEP_CHECK(args.pieces.shape.rank >= 2 && args.pieces.shape[0] >= 1 &&
                     args.pieces.elements() == args.pieces.shape[0] * n,
                 "pieces is ", args.pieces.shape, ", expected [P, ", n, "]");
  if (args.bias) {
    check_dtype("bias", args.bias, args.pieces.dtype);
    LOCKSTEP_CHECK(args.bias.elements() > 0 && n % args.bias.elements() == 0, "bias has ",
                   args.bias.elements(), " elements, expected a divisor of ", n);
  }
  if (args.residual) {
    check_dtype("residual", args.residual, args.pieces.dtype);
    LOCKSTEP_CHECK(args.residual.elements() == n, "residual has ", args.residual.elements(),
                   " elements, expected ", n);
    LOCKSTEP_CHECK(args.residual.data != args.out.data || args.residual.dtype == args.out.dtype,
                   "out is residual, but ", name(args.out.dtype), ", expected ",
                   name(args.residual.dtype));
  }
  if (args.absmax) check_tensor("absmax", args.absmax, {1}, DType::fp32);
  const OpLog::Call call(
      stream, memory_op("sum_pieces", args.pieces.dtype,
                        {args.pieces, args.out, args.add ? args.out : Tensor(), args.residual}));
  LOCKSTEP_DISPATCH(stream, sum_pieces(stream, args));
}

}  // namespace lockstep
