#include "core/zstd.h"
#include "data/pack/decompress.h"

namespace lockstep {
namespace {

class Zstd final : public Decompressor {
 public:
  Step step(std::span<const char> in, std::span<char> out) override {
    const auto step = reader_.step(in, out);
    return {step.taken, step.made, step.ended};
  }

 private:
  ZstdReader reader_;
};

}  // namespace

std::unique_ptr<Decompressor> zstd_decompressor() {
  return std::make_unique<Zstd>();
}

}  // namespace lockstep
