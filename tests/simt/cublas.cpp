// cuBLASLt of tests/simt computes matmuls as its manual defines them, in column-major loops. It
// runs as a kernel of one thread, so the simulator checks its reads and writes.
//
// It has a few algorithms, which differ in time and in bits: the sums of algorithm i are larger by
// i / 2^22, and those for n multiprocessors by n / 2^18. Environment:
//   LOCKSTEP_SIMT_FASTEST: the fastest algorithm (default 2)
//   LOCKSTEP_SIMT_TARGET: the target of multiprocessors for which all algorithms take half the time
//   (default -1: none)
//   LOCKSTEP_SIMT_EPILOGUE: the time of an epilogue in microseconds (default 0)
//   LOCKSTEP_SIMT_CUBLASLT: the version of the library
//   LOCKSTEP_SIMT_CUBLASLT_ERROR=CALL:STATUS: the number of the status that cublasLtMatmulCALL
//   returns for matmuls with an epilogue (AlgoGetHeuristic, AlgoCheck; empty: cublasLtMatmul)
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <cublasLt.h>

#include "core/fp8.h"
#include "tests/simt/simt.h"

struct cublasLtContext {};
struct cublasLtMatmulPreferenceOpaque {};
struct cublasLtMatmulDescOpaque {
  std::map<int, std::uint64_t> values;
  std::uint64_t at(int attribute, std::uint64_t absent = 0) const {
    const auto found = values.find(attribute);
    return found == values.end() ? absent : found->second;
  }
  void* pointer(int attribute) const { return reinterpret_cast<void*>(at(attribute)); }
  cudaDataType_t type(int attribute) const { return static_cast<cudaDataType_t>(at(attribute)); }
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
};

namespace {

using lockstep::BFloat16;

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
std::size_t bytes_of(cudaDataType_t type) {
  return is_fp8(type) ? 1 : type == CUDA_R_16BF ? 2 : 4;
}

// Element i of device memory.
float get(const void* data, cudaDataType_t type, std::int64_t i) {
  const auto* p =
      static_cast<const std::byte*>(data) + i * static_cast<std::int64_t>(bytes_of(type));
  simt::read(p, bytes_of(type));
  switch (type) {
    case CUDA_R_16BF: return to_float(*reinterpret_cast<const BFloat16*>(p));
    case CUDA_R_8F_E4M3: return fp8_to_float(*reinterpret_cast<const lockstep::Fp8E4M3*>(p));
    case CUDA_R_8F_E5M2: return fp8_to_float(*reinterpret_cast<const lockstep::Fp8E5M2*>(p));
    default: return *reinterpret_cast<const float*>(p);
  }
}
void put(void* data, cudaDataType_t type, std::int64_t i, double value) {
  auto* p = static_cast<std::byte*>(data) + i * static_cast<std::int64_t>(bytes_of(type));
  simt::write(p, bytes_of(type));
  const auto v = static_cast<float>(value);
  if (type == CUDA_R_16BF)
    *reinterpret_cast<BFloat16*>(p) = lockstep::to_bf16(v);
  else
    *reinterpret_cast<float*>(p) = v;
}

// The scale of element (row, column) of a column-major operand in fp8. The layouts are those of the
// manual of cuBLAS, "Narrow precision usage": the sums of the matmul run along rows.
float scale_of(const void* scales, std::uint64_t mode, const cublasLtMatrixLayoutOpaque& l,
               std::int64_t row, std::int64_t column) {
  const auto blocks = (l.rows + 127) / 128;
  std::int64_t at = 0;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) at = row / 128 * l.columns + column;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    at = column / 128 * ((blocks + 3) / 4 * 4) + row / 128;
  return get(scales, CUDA_R_32F, at);
}

std::vector<double> matrix(const void* data, const cublasLtMatrixLayoutOpaque& l,
                           const void* scales, std::uint64_t mode) {
  std::vector<double> values(static_cast<std::size_t>(l.rows * l.columns));
  for (std::int64_t c = 0; c < l.columns; ++c)
    for (std::int64_t r = 0; r < l.rows; ++r) {
      double v = static_cast<double>(get(data, l.type, c * l.leading + r));
      if (is_fp8(l.type)) v *= static_cast<double>(scale_of(scales, mode, l, r, c));
      values[static_cast<std::size_t>(c * l.rows + r)] = v;
    }
  return values;
}

// The requirements of the manual for fp8 matmuls on Hopper.
bool is_fp8_product(const cublasLtMatmulDescOpaque& description,
                    const cublasLtMatrixLayoutOpaque& a, const cublasLtMatrixLayoutOpaque& b) {
  const auto mode_a = description.at(CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  const auto mode_b = description.at(CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  const auto unit = mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ? 16 : 128;
  const auto epilogue = description.at(CUBLASLT_MATMUL_DESC_EPILOGUE);
  return is_fp8(b.type) && (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) &&
         description.at(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T &&
         description.at(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N &&
         (mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) ==
             (mode_b == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) &&
         (mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F || mode_b != mode_a) &&
         (unit == 16 || description.at(CUBLASLT_MATMUL_DESC_FAST_ACCUM) == 0) &&
         a.rows % unit == 0 && a.columns % 16 == 0 && b.columns % 16 == 0 &&
         (epilogue == CUBLASLT_EPILOGUE_DEFAULT ||  // a bias not always: so tests run both ways
          (epilogue == CUBLASLT_EPILOGUE_BIAS && b.columns % 32 == 0)) &&
         description.pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) != nullptr &&
         description.pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) != nullptr;
}

constexpr std::uint64_t kAlgorithms = 4;
constexpr std::uint64_t kFirstAlgorithm = 0x5151;  // the id of the first one

long from_environment(const char* name, long absent) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atol(value) : absent;
}

// The status that a test planted, or success.
cublasStatus_t planted_error(const char* call, const cublasLtMatmulDescOpaque& description) {
  const char* planted = std::getenv("LOCKSTEP_SIMT_CUBLASLT_ERROR");
  if (planted == nullptr ||
      description.at(CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_SUCCESS;
  const std::string text = planted;
  const auto colon = text.find(':');
  if (text.substr(0, colon) != call) return CUBLAS_STATUS_SUCCESS;
  return static_cast<cublasStatus_t>(std::stoi(text.substr(colon + 1)));
}

bool is_algorithm(const cublasLtMatmulAlgo_t& algorithm) {
  for (int i = 1; i < 8; ++i)
    if (algorithm.data[i] != 0) return false;
  return algorithm.data[0] - kFirstAlgorithm < kAlgorithms;
}

// The heuristics rank the first algorithm as the fastest. Another one is faster by 20%, and one is
// faster than the first by half a percent, which is noise.
void pass_time_of(std::uint64_t algorithm, std::uint64_t target) {
  const auto fastest = static_cast<std::uint64_t>(from_environment("LOCKSTEP_SIMT_FASTEST", 2));
  const std::uint64_t nanoseconds[kAlgorithms] = {100'000, 99'500, 100'000, 120'000};
  const auto time = algorithm == fastest ? 80'000 : nanoseconds[algorithm];
  const auto best_target = from_environment("LOCKSTEP_SIMT_TARGET", -1);
  simt::pass_time(static_cast<long>(target) == best_target ? time / 2 : time);
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

}  // namespace

std::size_t cublasLtGetVersion() {
  return static_cast<std::size_t>(from_environment("LOCKSTEP_SIMT_CUBLASLT", 130000));
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    default: return "an error of the simulated cuBLASLt";
  }
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (std::getenv("NVIDIA_TF32_OVERRIDE") != nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t /*compute*/, cudaDataType_t /*scale*/) {
  *description = new cublasLtMatmulDescOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  std::uint64_t v = 0;
  if (bytes != 1 && bytes != 4 && bytes != 8) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&v, value, bytes);
  description->values[attribute] = v;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque{type, static_cast<std::int64_t>(rows),
                                           static_cast<std::int64_t>(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t /*preference*/, cublasLtMatmulPreferenceAttributes_t /*attribute*/,
    const void* /*value*/, std::size_t /*bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}

// Supports epilogues only for bf16 with columns of a multiple of 16 bytes, so tests run both ways.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t /*preference*/, int requested,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const bool plain = description->at(CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_DEFAULT;
  *found = 0;
  if (const auto error = planted_error("AlgoGetHeuristic", *description);
      error != CUBLAS_STATUS_SUCCESS)
    return error;
  if (is_fp8(a->type)) {
    if (!is_fp8_product(*description, *a, *b)) return CUBLAS_STATUS_NOT_SUPPORTED;
  } else if (!plain && (a->type != CUDA_R_16BF || d->rows % 8 != 0)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (std::uint64_t i = 0; i < kAlgorithms && *found < requested; ++i)
    results[(*found)++] = {.algo = {{kFirstAlgorithm + i}},
                           .workspaceSize = 0,
                           .state = CUBLAS_STATUS_SUCCESS,
                           .wavesCount = 1};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/,
                                       cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                       cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  if (const auto error = planted_error("AlgoCheck", *description); error != CUBLAS_STATUS_SUCCESS)
    return error;
  return is_algorithm(*algorithm) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen,
                              void* /*workspace*/, std::size_t /*workspace_bytes*/,
                              cudaStream_t stream) {
  const bool ta = description->at(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const bool tb = description->at(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const auto epilogue = description->at(CUBLASLT_MATMUL_DESC_EPILOGUE);
  const std::int64_t m = d_layout->rows, n = d_layout->columns;
  const std::int64_t k = ta ? a_layout->rows : a_layout->columns;
  if ((ta ? a_layout->columns : a_layout->rows) != m ||
      (tb ? b_layout->columns : b_layout->rows) != k ||
      (tb ? b_layout->rows : b_layout->columns) != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const auto error = planted_error("", *description); error != CUBLAS_STATUS_SUCCESS)
    return error;
  if (!is_algorithm(*chosen)) throw simt::Violation("cublasLtMatmul by what is no algorithm");
  const auto algorithm = chosen->data[0] - kFirstAlgorithm;
  const auto target = description->at(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
  const double bits =
      1 + static_cast<double>(algorithm) * 0x1p-22 + static_cast<double>(target) * 0x1p-18;
  const double scale = bits * *static_cast<const float*>(alpha),
               add = *static_cast<const float*>(beta);
  void* const bias = description->pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  void* const aux = description->pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  const auto bias_type = description->type(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  const auto aux_type = description->type(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
  const auto aux_ld =
      static_cast<std::int64_t>(description->at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
  const void* const a_scales = description->pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  const void* const b_scales = description->pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  const auto a_mode = description->at(CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  const auto b_mode = description->at(CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  const auto compute = [=, left_layout = *a_layout, right_layout = *b_layout,
                        c_type = c_layout->type, c_leading = c_layout->leading,
                        d_type = d_layout->type, d_leading = d_layout->leading] {
    const auto left = matrix(a, left_layout, a_scales, a_mode);
    const auto right = matrix(b, right_layout, b_scales, b_mode);
    const auto A = [&](std::int64_t i, std::int64_t l) {
      return left[static_cast<std::size_t>(ta ? i * k + l : l * m + i)];
    };
    const auto B = [&](std::int64_t l, std::int64_t j) {
      return right[static_cast<std::size_t>(tb ? l * n + j : j * k + l)];
    };
    for (std::int64_t j = 0; j < n; ++j) {
      double column = 0;
      for (std::int64_t l = 0; l < k; ++l)
        column += B(l, j);
      if (epilogue == CUBLASLT_EPILOGUE_BGRADB) put(bias, bias_type, j, column);
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += A(i, l) * B(l, j);
        sum *= scale;
        if (add != 0) sum += add * get(c, c_type, j * c_leading + i);
        if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          sum += get(bias, bias_type, i);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          put(aux, aux_type, j * aux_ld + i, sum);
          sum = gelu(sum);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU)
          sum *= gelu_slope(get(aux, aux_type, j * aux_ld + i));
        put(d, d_type, j * d_leading + i, sum);
      }
    }
  };
  simt::submit(stream, [compute, algorithm, target, epilogue] {
    simt::launch({1}, {1}, 0, compute);
    pass_time_of(algorithm, target);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      simt::pass_time(1000 *
                      static_cast<std::uint64_t>(from_environment("LOCKSTEP_SIMT_EPILOGUE", 0)));
  });
  return CUBLAS_STATUS_SUCCESS;
}
