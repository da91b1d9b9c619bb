#include "train/step/numerics.h"

#include <algorithm>
#include <chrono>

#include "core/file.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/system/gpu_monitor.h"
#include "core/units.h"
#include "dist/nccl_world.h"

namespace lockstep {
namespace {

constexpr char kMeasured[] = "; matmul algorithms are measured again, and bits may differ";

// The recorded algorithms that this GPU may use; none without a usable record.
MatmulAlgorithms usable_products(const NumericsRecord& here, FunctionRef<Json()> recorded,
                                 const std::string& where) {
  try {
    const Json object = recorded();
    if (object.is_null() || object.find("products") == nullptr) return {};
    auto record = numerics_in(object);
    if (record.driver != here.driver)
      log_info("changed: GPU driver ", record.driver, " -> ", here.driver);
    if (record.nccl != here.nccl)
      log_warning(where, " was recorded with NCCL ", record.nccl.empty() ? "none" : record.nccl,
                  ", this is ", here.nccl.empty() ? "none" : here.nccl, "; bits may differ");
    if (record.device == here.device) return record.products;
    log_warning(where, " was recorded on ", record.device, ", this is ", here.device, kMeasured);
  } catch (const DataError& error) {
    log_warning(where, ": ", error.what(), kMeasured);
  }
  return {};
}

std::string in_words(const MatmulAlgorithms& products) {
  Json json = Json::Object{};
  add_to(json, NumericsRecord{
                   .device = "", .driver = "", .nccl = "", .cleared = {}, .products = products});
  return json.dump();
}

// Each rank measures for itself and may choose differently. Then all ranks take the algorithms of
// rank 0, which are recorded for later runs.
ChosenAlgorithms choose_as_rank_0(Training& training, const MatmulAlgorithms& recorded) {
  auto chosen = training.choose_matmul_algorithms(recorded);
  World& world = *training.params().comms().world;
  const auto said = world.exchange(in_words(chosen.choices));
  if (std::equal(said.begin() + 1, said.end(), said.begin())) return chosen;
  const auto of_rank_0 = numerics_in(Json::parse(said.front(), "what rank 0 chose")).products;
  auto again = training.choose_matmul_algorithms(of_rank_0);
  agree(world, "matmul algorithms", {{"choice of rank 0", in_words(again.choices)}});
  chosen.choices = std::move(again.choices);
  return chosen;
}

}  // namespace

void add_to(Json& object, const NumericsRecord& record) {
  Json products = Json::Object{};
  for (const auto& [product, algorithm] : record.products.algorithms)
    products.set(product, algorithm);
  object.set("device", record.device);
  object.set("driver", record.driver);
  if (!record.nccl.empty()) object.set("nccl", record.nccl);
  if (!record.cleared.empty()) {
    Json::Array names(record.cleared.begin(), record.cleared.end());
    object.set("cleared_variables", std::move(names));
  }
  object.set("cublaslt", record.products.cublaslt);
  object.set("products", std::move(products));
}

NumericsRecord numerics_in(const Json& object) {
  NumericsRecord record{
      .device = text_at(object, "device"),
      .driver = text_at(object, "driver"),
      .nccl = object.find("nccl") == nullptr ? "" : text_at(object, "nccl"),
      .cleared = {},  // belongs to that start
      .products = {.cublaslt = integer_at(object, "cublaslt", 1, INT64_MAX), .algorithms = {}}};
  const auto read = [&] {
    for (const auto& [product, algorithm] : object.at("products").as_object())
      record.products.algorithms[product] = algorithm.as_string();
  };
  in_context(read, "products");
  return record;
}

Json read_numerics(const std::filesystem::path& file) {
  constexpr std::int64_t kMostBytes = 10'000'000;
  return Json::parse(read_text(file, kMostBytes), "not JSON");
}

NumericsRecord numerics_here(const Stream& compute, int ranks) {
  const auto gpu = compute.device().index;
  const auto driver = GpuMonitor(gpu::pci_bus_id(gpu)).driver_version();
  return {.device = gpu::properties(gpu).name,
          .driver = driver.value_or(gpu::driver_version()),
          .nccl = ranks > 1 ? nccl_in_words() : "",
          .cleared = gpu::cleared_variables(),
          .products = {.cublaslt = cublaslt_version(), .algorithms = {}}};
}

Fields fields_of(const NumericsRecord& record, const std::string& attention) {
  return {{"GPU", record.device},
          {"GPU driver", record.driver},
          {"NCCL", record.nccl},
          {"cuBLASLt", std::to_string(record.products.cublaslt)},
          {"attention", attention}};
}

NumericsRecord choose_numerics(Training& training, const Stream& compute,
                               FunctionRef<Json()> recorded, const std::string& where) {
  const auto begin = std::chrono::steady_clock::now();
  auto here = numerics_here(compute, training.config().mesh.world());
  const auto usable = usable_products(here, recorded, where);
  const auto free_before = gpu::free_bytes();
  auto chosen = choose_as_rank_0(training, usable);
  log_info("free GPU memory: ", human_bytes(static_cast<double>(free_before)), " before and ",
           human_bytes(static_cast<double>(gpu::free_bytes())),
           " after choosing matmul algorithms (cuBLASLt loads its kernels then)");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  if (!usable.algorithms.empty() && usable.cublaslt != chosen.choices.cublaslt)
    log_warning(where, " was recorded with cuBLASLt ", usable.cublaslt, ", this is ",
                chosen.choices.cublaslt, kMeasured);
  for (const auto& product : chosen.refused)
    log_warning(where, ": cuBLASLt rejects the recorded algorithm of the matmul ", product,
                "; it is measured again, and bits may differ");
  const bool same_library = usable.cublaslt == chosen.choices.cublaslt;
  const auto measured = chosen.measured.size();
  const auto restored = chosen.choices.algorithms.size() - measured;
  const auto products = [](std::size_t n) { return str(n, " matmul", n == 1 ? "" : "s"); };
  if (!usable.algorithms.empty() && same_library && measured > chosen.refused.size())
    log_warning(where, " has no record of ", products(measured - chosen.refused.size()),
                " (another train.micro_batch?); they are measured, and bits may differ");
  if (measured > 0) log_info("measured ", products(measured), " in ", human_seconds(took.count()));
  if (restored > 0) log_info("restored ", products(restored), " from ", where);
  here.products = std::move(chosen.choices);
  // Keeps recorded algorithms that this run does not use, for a later run with other settings.
  if (same_library)
    here.products.algorithms.insert(usable.algorithms.begin(), usable.algorithms.end());
  return here;
}

}  // namespace lockstep
