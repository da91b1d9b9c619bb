#include "kernels/content_hash.h"

#include "kernels/check.h"

namespace lockstep {

void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place) {
  check_tensor("hash", hash, {2}, DType::int32);
  check_float("x", x);
  LOCKSTEP_CHECK(place.first_index >= 0 && place.first >= 0 && place.columns > 0,
                 "an element of index ", place.first_index, " after ", place.first, " in rows of ",
                 place.columns);
  const OpLog::Call call(stream, memory_op("add_content_hash", x.dtype, {x}));
  LOCKSTEP_DISPATCH(stream, add_content_hash(stream, hash, x, place));
}

}  // namespace lockstep
