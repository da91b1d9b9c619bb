// Any numerics.json is rejected, or survives a round trip through add_to().
#include "core/json.h"
#include "tests/fuzz/fuzz.h"
#include "train/step/numerics.h"

namespace lockstep::fuzz::numerics_fuzz {

Seeds seeds() {
  return {R"({"device": "NVIDIA H200", "driver": "13.0", "cublaslt": 130002, "products": {}})",
          R"({"device": "a", "driver": "b", "cublaslt": 1, "products": {"p": "00ff", "q": ""}})"};
}

void check(std::string_view text) {
  const NumericsRecord record = numerics_in(Json::parse(text, "input"));
  Json written;
  add_to(written, record);
  const NumericsRecord again = numerics_in(Json::parse(written.dump(2), "written"));
  LOCKSTEP_CHECK(again.device == record.device && again.driver == record.driver &&
                     again.products.cublaslt == record.products.cublaslt &&
                     again.products.algorithms == record.products.algorithms,
                 written.dump(), " reads back as another");
}

const Target target("numerics", seeds, check);

}  // namespace lockstep::fuzz::numerics_fuzz
