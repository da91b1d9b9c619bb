#include <array>
#include <bit>
#include <charconv>
#include <compare>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include "core/error.h"
#include "core/gpu.h"
#include "core/hash.h"
#include "core/log.h"
#include "kernels/autotune.h"
#include "kernels/cublas.cuh"
#include "kernels/occupation.cuh"

namespace lockstep {
namespace {

[[noreturn]] void fail_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  fail(str(call, ": ", cublasLtGetStatusString(status)), file, line);
}

#define CUBLAS_CHECK(...)                                                                 \
  do {                                                                                    \
    if (const auto cublas_status = (__VA_ARGS__); cublas_status != CUBLAS_STATUS_SUCCESS) \
      fail_cublas(cublas_status, #__VA_ARGS__, __FILE__, __LINE__);                       \
  } while (0)

// Returns whether the status of a call that chooses an algorithm means that cuBLASLt cannot compute
// a matmul, or not with this algorithm. Throws on any other error, for instance a failed allocation
// or a failed load of a kernel.
bool is_refused(cublasStatus_t status, const char* call) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return false;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_ARCH_MISMATCH: return true;
    default: fail_cublas(status, call, __FILE__, __LINE__);
  }
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::fp32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::fp8_e4m3: return CUDA_R_8F_E4M3;
    case DType::fp8_e5m2: return CUDA_R_8F_E5M2;
    default: LOCKSTEP_FAIL("a matmul of ", name(dtype));
  }
}

bool is_fp8(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
}

cublasLtMatmulMatrixScale_t scale_mode(Scaling scaling) {
  switch (scaling) {
    case Scaling::rows: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::blocks: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case Scaling::tensor: break;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

cublasLtEpilogue_t epilogue_of(Product::Epilogue epilogue) {
  switch (epilogue) {
    case Product::Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Product::Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Product::Epilogue::gelu: return CUBLASLT_EPILOGUE_GELU_AUX;
    case Product::Epilogue::gelu_bias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Product::Epilogue::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
    case Product::Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

const char* name(Product::Epilogue epilogue) {
  switch (epilogue) {
    case Product::Epilogue::none: return "none";
    case Product::Epilogue::bias: return "bias";
    case Product::Epilogue::gelu: return "gelu";
    case Product::Epilogue::gelu_bias: return "gelu_bias";
    case Product::Epilogue::gelu_gradient: return "gelu_gradient";
    case Product::Epilogue::bias_gradient: return "bias_gradient";
  }
  return "?";
}

// Returns the largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const void* address) {
  const auto a = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(a & -a);
}

// Owned holds one of cuBLASLt's objects and destroys it.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
  Handle handle = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

Layout layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  Layout l;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&l.handle, data_type(dtype),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows));
  return l;
}

// Key holds everything that a plan depends on; text() contains all of it.
struct Key {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, adds_c;
  DType a, b, outputs, bias;
  Product::Epilogue epilogue;
  Scaling a_scaling, b_scaling;
  bool fast;
  std::uint32_t align_a, align_b, align_c, align_d, align_bias, align_aux;
  auto operator<=>(const Key&) const = default;

  explicit Key(const Product& p)
      : m(p.m),
        n(p.n),
        k(p.k),
        transpose_a(p.transpose_a),
        transpose_b(p.transpose_b),
        adds_c(bool(p.c)),
        a(p.a.dtype),
        b(p.b.dtype),
        outputs(p.d.dtype),
        bias(p.bias.dtype),
        epilogue(p.epilogue),
        a_scaling(p.fp8.a_scaling),
        b_scaling(p.fp8.b_scaling),
        fast(p.fp8.fast),
        align_a(alignment_of(p.a.data)),
        align_b(alignment_of(p.b.data)),
        align_c(alignment_of(p.c ? p.c.data : p.d.data)),
        align_d(alignment_of(p.d.data)),
        align_bias(alignment_of(p.bias.data)),
        align_aux(alignment_of(p.aux.data)) {}

  // cuBLASLt has no epilogue for a bias of another type than the result. It has none for an
  // auxiliary matrix whose columns are not a multiple of 8 elements. Its GELU is meant for 16-bit
  // results.
  bool is_possible() const {
    const bool has_gelu = epilogue == Product::Epilogue::gelu ||
                          epilogue == Product::Epilogue::gelu_bias ||
                          epilogue == Product::Epilogue::gelu_gradient;
    const bool has_bias = epilogue == Product::Epilogue::bias ||
                          epilogue == Product::Epilogue::gelu_bias ||
                          epilogue == Product::Epilogue::bias_gradient;
    return (!has_bias || bias == outputs) && (!has_gelu || (m % 8 == 0 && outputs == DType::bf16));
  }

  std::string scales() const {
    if (!is_fp8(a)) return "";
    static constexpr const char* kNames[] = {"tensor", "rows", "blocks"};
    return str(" scaled by ", kNames[static_cast<int>(a_scaling)], ' ',
               kNames[static_cast<int>(b_scaling)], fast ? ", fast" : "");
  }

  // Returns the name of the matmul in records.
  std::string text() const {
    return str(m, " x ", n, " x ", k, ' ', transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', ' ',
               lockstep::name(a), ' ', lockstep::name(b), scales(), " to ", lockstep::name(outputs),
               adds_c ? ", added" : "", ", epilogue ", name(epilogue), " of ", lockstep::name(bias),
               ", aligned ", align_a, ' ', align_b, ' ', align_c, ' ', align_d, ' ', align_bias,
               ' ', align_aux);
  }
};

void set_pointers(cublasLtMatmulDesc_t description, const Product& product) {
  if (product.bias)
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        static_cast<const void*>(product.bias.data));
  if (product.aux)
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        static_cast<const void*>(product.aux.data));
  if (is_fp8(product.a.dtype)) {
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
        static_cast<const void*>(product.fp8.a_scales.data));
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
        static_cast<const void*>(product.fp8.b_scales.data));
  }
}

constexpr int kMostCandidates = 16;

// Algorithm is a way to compute a matmul. The target is the number of multiprocessors for which
// cuBLASLt chooses the tiles and blocks; 0: all. (nvcc 13.0 fails on a std::vector of
// cublasLtMatmulAlgo_t itself.)
struct Algorithm {
  cublasLtMatmulAlgo_t value{};
  int target = 0;
};

struct Plan {
  Description description;
  Layout a, b, d;
  bool is_there = false;  // false: cuBLASLt cannot compute it
  std::string name = {};  // in records and messages
  Algorithm algorithm;    // its target is set in the description
};

void set_target(Plan& plan, int target) {
  if (plan.algorithm.target == target) return;
  set(plan.description.handle, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
      static_cast<std::int32_t>(target));
  plan.algorithm.target = target;
}
void set_algorithm(Plan& plan, const Algorithm& algorithm) {
  set_target(plan, algorithm.target);
  plan.algorithm = algorithm;
}

const std::string kUnfused = "unfused";  // recorded in place of an algorithm

using AlgorithmBytes = std::array<unsigned char, sizeof(cublasLtMatmulAlgo_t)>;
constexpr char kTarget = '@';  // before the target, if there is one

// cuBLASLt does not document its behaviour for bytes that it did not write. A hash after the bytes
// detects them, and a damaged target.
constexpr std::size_t kHashDigits = 16;
std::string hash_of(const AlgorithmBytes& bytes, int target) {
  std::string hashed(bytes.begin(), bytes.end());
  if (target != 0) hashed += std::to_string(target);
  return hash_hex(std::as_bytes(std::span(hashed))).substr(0, kHashDigits);
}

std::string to_text(const Algorithm& algorithm) {
  const auto bytes = std::bit_cast<AlgorithmBytes>(algorithm.value);
  std::string text;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15})
      text += "0123456789abcdef"[digit];
  text += hash_of(bytes, algorithm.target);
  return algorithm.target == 0 ? text : str(text, kTarget, algorithm.target);
}

// Returns false if the text is not an algorithm.
bool from_text(Algorithm& algorithm, const std::string& text) {
  AlgorithmBytes bytes{};
  if (text.size() < 2 * bytes.size() + kHashDigits) return false;
  const char* digits = text.data();
  for (unsigned char& byte : bytes) {
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc{} || end != digits + 2) return false;
    digits = end;
  }
  int target = 0;
  if (const auto at = text.find(kTarget); at != std::string::npos)
    std::from_chars(text.data() + at + 1, text.data() + text.size(), target);
  const Algorithm read{std::bit_cast<cublasLtMatmulAlgo_t>(bytes), target};
  if (text != to_text(read)) return false;
  algorithm = read;
  return true;
}

}  // namespace

struct Cublas::State {
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
  bool is_choosing = false, is_trying = false;  // trying: a way that may not be chosen
  int multiprocessors = 0, held = 0;            // of the GPU; held by others (matmul_algorithms.h)
  std::unique_ptr<Occupation> others;           // while choosing, if some are held
  std::map<std::string, std::string> recorded;
  std::set<std::string> asked;  // names of matmuls requested while choosing
  ChosenAlgorithms chosen;

  Plan make_plan(const Product& product, const Key& key) const;
  std::vector<Algorithm> candidates(const Plan& plan, const Key& key, int most) const;
  bool enqueue(Stream& stream, const Plan& plan, const Product& product, Tensor workspace) const;
  void choose(Stream& stream, Plan& plan, const Key& key, const Product& product, Tensor workspace,
              const FunctionRef<void()>* unfused);
  bool is_faster_unfused(Stream& stream, const FunctionRef<void()>& unfused,
                         FunctionRef<bool()> fused);
  Fastest find_fastest_beside_others(Stream& stream, int ways,
                                     FunctionRef<bool(int way)> run) const;
  bool restore(Plan& plan, const std::string& text) const;
};

Cublas::Cublas() : state_(std::make_unique<State>()) {
  CUBLAS_CHECK(cublasLtCreate(&state_->handle));
}

Cublas::~Cublas() {
  state_->plans.clear();
  cublasLtDestroy(state_->handle);
}

Plan Cublas::State::make_plan(const Product& product, const Key& key) const {
  Plan plan{.description = {},
            .a = key.transpose_a ? layout(key.a, key.k, key.m) : layout(key.a, key.m, key.k),
            .b = key.transpose_b ? layout(key.b, key.n, key.k) : layout(key.b, key.k, key.n),
            .d = layout(key.outputs, key.m, key.n),
            .is_there = false,
            .name = key.text(),
            .algorithm = {}};
  if (!key.is_possible()) return plan;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan.description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto description = plan.description.handle;
  const auto transpose = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, transpose(key.transpose_a));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, transpose(key.transpose_b));
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
  switch (key.epilogue) {
    case Product::Epilogue::none: break;
    case Product::Epilogue::bias:
    case Product::Epilogue::bias_gradient:
      set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.bias));
      break;
    case Product::Epilogue::gelu_bias:
      set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.bias));
      [[fallthrough]];
    case Product::Epilogue::gelu:
    case Product::Epilogue::gelu_gradient:
      set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, data_type(key.outputs));
      set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.m);
  }

  if (is_fp8(key.a)) {
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(key.a_scaling));
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(key.b_scaling));
    set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(key.fast));
  }
  set_pointers(description, product);  // their alignment matters too

  const auto first = candidates(plan, key, 1);
  plan.is_there = !first.empty();
  if (plan.is_there) plan.algorithm = first.front();
  return plan;
}

// Returns algorithms for the plan's target, in the order of speed that cuBLASLt expects. None:
// cuBLASLt cannot compute the matmul.
std::vector<Algorithm> Cublas::State::candidates(const Plan& plan, const Key& key, int most) const {
  Preference preference;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kWorkspaceBytes));
  // Sums that are split over blocks are added in fp32 and in order, never in place.
  set(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_a);
  set(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_b);
  set(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  set(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_d);
  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> results{};
  int found = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.handle, plan.a.handle, plan.b.handle, plan.d.handle, plan.d.handle,
      preference.handle, most, results.data(), &found);
  std::vector<Algorithm> algorithms;
  if (is_refused(status, "cublasLtMatmulAlgoGetHeuristic")) return algorithms;
  for (int i = 0; i < found; ++i)
    if (const auto& result = results[static_cast<std::size_t>(i)];
        !is_refused(result.state, "cublasLtMatmulAlgoGetHeuristic, an algorithm"))
      algorithms.push_back({result.algo, plan.algorithm.target});
  return algorithms;
}

// Returns false, and enqueues nothing, if cuBLASLt rejects the algorithm although it proposed it.
// In a step this changes bits and is logged. An invalid argument in a step is an error.
bool Cublas::State::enqueue(Stream& stream, const Plan& plan, const Product& product,
                            Tensor workspace) const {
  const float one = 1.0f, beta = product.c ? 1.0f : 0.0f;
  const auto* c = product.c ? product.c.data : product.d.data;
  const auto status = cublasLtMatmul(
      handle, plan.description.handle, &one, product.a.data, plan.a.handle, product.b.data,
      plan.b.handle, &beta, c, plan.d.handle, product.d.data, plan.d.handle, &plan.algorithm.value,
      workspace.data, static_cast<std::size_t>(kWorkspaceBytes), stream.native());
  if (is_choosing) return !is_refused(status, "cublasLtMatmul");
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    log_warning("cuBLASLt does not support the algorithm that was chosen for the matmul ",
                plan.name,
                "; kernels without its epilogue compute it from now on, and bits differ");
    return false;
  }
  if (status != CUBLAS_STATUS_SUCCESS)
    fail_cublas(status, str("cublasLtMatmul, ", plan.name).c_str(), __FILE__, __LINE__);
  return true;
}

void Cublas::State::choose(Stream& stream, Plan& plan, const Key& key, const Product& product,
                           Tensor workspace, const FunctionRef<void()>* unfused) {
  const auto& name = plan.name;
  if (const auto found = recorded.find(name); found != recorded.end()) {
    plan.is_there = unfused == nullptr || found->second != kUnfused;
    if (!plan.is_there ||
        (restore(plan, found->second) && enqueue(stream, plan, product, workspace))) {
      chosen.choices.algorithms.insert(*found);
      return;
    }
    chosen.refused.push_back(name);
  }
  set_target(plan, 0);
  auto algorithms = candidates(plan, key, kMostCandidates);
  if (held > 0) {
    set_target(plan, multiprocessors - held);
    const auto with_target = candidates(plan, key, kMostCandidates);
    algorithms.insert(algorithms.end(), with_target.begin(), with_target.end());
  }
  const auto ways = static_cast<int>(algorithms.size());
  const auto fastest = find_fastest_beside_others(stream, ways, [&](int way) {
    set_algorithm(plan, algorithms[static_cast<std::size_t>(way)]);
    return enqueue(stream, plan, product, workspace);
  });
  plan.is_there = fastest.way >= 0;
  if (!plan.is_there) return;
  set_algorithm(plan, algorithms[static_cast<std::size_t>(fastest.way)]);
  plan.is_there = unfused == nullptr || !is_faster_unfused(stream, *unfused, [&] {
                    return enqueue(stream, plan, product, workspace);
                  });
  chosen.choices.algorithms[name] = plan.is_there ? to_text(plan.algorithm) : kUnfused;
  chosen.measured.push_back({name, fastest.seconds});
}

bool Cublas::State::is_faster_unfused(Stream& stream, const FunctionRef<void()>& unfused,
                                      FunctionRef<bool()> fused) {
  const bool was_trying = std::exchange(is_trying, true);
  const auto fastest = find_fastest_beside_others(stream, 2, [&](int way) {
    if (way == 0) return fused();
    unfused();
    return true;
  });
  is_trying = was_trying;
  return fastest.way == 1;
}

// Many kernels of Hopper and later have one block for each multiprocessor, and a block computes
// several tiles in turn. If others hold some multiprocessors, some blocks start after all others
// have ended, and the matmul can take twice as long (pytorch/pytorch issue 143988). A smaller
// target changes cuBLASLt's proposals, and the number of blocks of some kernels. So ways are
// measured while others hold as many multiprocessors as in a step.
Fastest Cublas::State::find_fastest_beside_others(Stream& stream, int ways,
                                                  FunctionRef<bool(int way)> run) const {
  if (!others) return find_fastest(stream, ways, run);
  for (int way = 0; way < ways; ++way)
    run(way);  // loads the code
  stream.synchronize();
  others->begin();
  auto fastest = find_fastest(stream, ways, run);
  others->end();
  return fastest;
}

// Accepts any target, because all ranks share one record, even if they hold different numbers of
// multiprocessors.
bool Cublas::State::restore(Plan& plan, const std::string& text) const {
  Algorithm algorithm;
  if (!from_text(algorithm, text) || algorithm.target < 0 || algorithm.target >= multiprocessors)
    return false;
  set_algorithm(plan, algorithm);
  cublasLtMatmulHeuristicResult_t result{};
  const auto status =
      cublasLtMatmulAlgoCheck(handle, plan.description.handle, plan.a.handle, plan.b.handle,
                              plan.d.handle, plan.d.handle, &plan.algorithm.value, &result);
  return !is_refused(status, "cublasLtMatmulAlgoCheck") &&
         result.workspaceSize <= static_cast<std::size_t>(kWorkspaceBytes);
}

void Cublas::begin_choosing(Device gpu, const MatmulAlgorithms& recorded, int held) {
  const auto version = cuda::cublaslt_version();
  state_->multiprocessors = gpu::properties(gpu.index).multiprocessors;
  state_->held = held < state_->multiprocessors ? held : 0;
  state_->others = state_->held > 0 ? std::make_unique<Occupation>(gpu, held) : nullptr;
  state_->plans.clear();
  state_->is_choosing = true;
  state_->recorded.clear();
  state_->asked.clear();
  if (recorded.cublaslt == version) state_->recorded = recorded.algorithms;
  state_->chosen = {};
  state_->chosen.choices.cublaslt = version;
}

// Discards matmuls that were only tried: a resumed run tries nothing and must find the same plans.
ChosenAlgorithms Cublas::end_choosing() {
  state_->is_choosing = false;
  state_->others.reset();
  const auto was_asked = [&](const std::string& name) { return state_->asked.contains(name); };
  std::erase_if(state_->plans, [&](const auto& plan) { return !was_asked(plan.first.text()); });
  std::erase_if(state_->chosen.choices.algorithms,
                [&](const auto& choice) { return !was_asked(choice.first); });
  std::erase_if(state_->chosen.measured,
                [&](const auto& measured) { return !was_asked(measured.product); });
  return std::move(state_->chosen);
}

bool Cublas::multiply(Stream& stream, const Product& product, Tensor workspace) {
  return multiply(stream, product, workspace, nullptr);
}

bool Cublas::multiply(Stream& stream, const Product& product, Tensor workspace,
                      FunctionRef<void()> unfused) {
  const bool has_epilogue = product.epilogue != Product::Epilogue::none;
  if (multiply(stream, product, workspace, has_epilogue ? &unfused : nullptr)) return true;
  unfused();
  return false;
}

bool Cublas::multiply(Stream& stream, const Product& product, Tensor workspace,
                      const FunctionRef<void()>* unfused) {
  LOCKSTEP_CHECK(workspace.bytes() >= kWorkspaceBytes, "a workspace of ", workspace.bytes(),
                 " bytes, expected ", kWorkspaceBytes);
  const Key key(product);
  if (state_->is_choosing && !state_->is_trying) state_->asked.insert(key.text());
  auto found = state_->plans.find(key);
  if (found == state_->plans.end()) {
    found = state_->plans.emplace(key, state_->make_plan(product, key)).first;
    if (found->second.is_there && state_->is_choosing)
      state_->choose(stream, found->second, key, product, workspace, unfused);
  }
  Plan& plan = found->second;
  if (!plan.is_there) return false;
  set_pointers(plan.description.handle, product);
  plan.is_there = state_->enqueue(stream, plan, product, workspace);
  return plan.is_there;
}

}  // namespace lockstep
