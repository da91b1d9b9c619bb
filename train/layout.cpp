#include "train/layout.h"

namespace lockstep {

Mesh mesh_of(const Config::Layout& layout, int ranks) {
  const auto product = layout.replicate * layout.shard * layout.tensor;
  if (product != ranks) {
    const auto others = layout.replicate * layout.tensor;
    throw ConfigError(str("layout.replicate x layout.shard x layout.tensor is ", layout.replicate,
                          " x ", layout.shard, " x ", layout.tensor, " = ", product, " ranks, but ",
                          ranks, ranks == 1 ? " was" : " were", " started; start ", product,
                          " (mpirun -n, srun --mpi=pmix -n), or ",
                          others == 1 ? "" : str("a multiple of ", others, " and "),
                          "omit layout.shard: it is then derived from the number of ranks"));
  }
  const auto replicate = static_cast<int>(layout.replicate), shard = static_cast<int>(layout.shard),
             tensor = static_cast<int>(layout.tensor);
  if (layout.sharding == Sharding::none) return {.replicate = replicate * shard, .tensor = tensor};
  return {replicate, shard, tensor};
}

std::string in_words(Recompute recompute) {
  return recompute == Recompute::none ? "no recompute" : str("recompute ", name(recompute));
}

}  // namespace lockstep
