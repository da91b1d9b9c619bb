#include "kernels/product_choices.h"

#include "kernels/dispatch.h"

namespace lockstep {

std::int64_t cublaslt_version() {
  LOCKSTEP_DISPATCH_CUDA(cublaslt_version());
}

ChosenProducts choose_products(Stream& stream, [[maybe_unused]] const ProductChoices& recorded,
                               [[maybe_unused]] FunctionRef<void()> run) {
  LOCKSTEP_CHECK(stream.is_cuda() && !stream.is_measuring(), "stream ", stream.name(),
                 " has no matmuls to choose algorithms for");
  LOCKSTEP_DISPATCH_CUDA(choose_products(stream, recorded, run));
}

}  // namespace lockstep
