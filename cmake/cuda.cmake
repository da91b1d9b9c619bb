# Finds the CUDA toolkit, if LOCKSTEP_CUDA is set.
if(LOCKSTEP_CUDA)
  # "90a-real" becomes -gencode arch=compute_90a,code=sm_90a; -arch=sm_90a alone fails with nvcc 13.
  list(TRANSFORM LOCKSTEP_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "LOCKSTEP_CUDA needs nvcc, on PATH or in the directory CUDA_HOME; "
        "the preset `cpu` builds without it")
    endif()
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  if(LOCKSTEP_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 lacks this option for nvcc 13
  find_package(CUDAToolkit REQUIRED)
endif()

# The CUDA kernels, and the operators with a CUDA kernel. tests/simt compiles both for a simulated GPU.
set(LOCKSTEP_CUDA_SOURCES
  adamw.cu
  attention.cu
  attention_decode.cu
  attention_flash.cu
  attention_flash_backward.cu
  attention_plain.cu
  content_hash.cu
  cross_entropy.cu
  cublas.cu
  elementwise.cu
  embedding.cu
  gelu.cu
  layernorm.cu
  matmul.cu
  matmul_fp8.cu
  occupation.cu
  pieces.cu
  matmul_algorithms.cu
  qk_norm.cu
  quantize.cu
  reduce.cu
  rmsnorm.cu
  rope.cu
  rows.cu
  sort.cu
  swiglu.cu
)
list(TRANSFORM LOCKSTEP_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/)
set(LOCKSTEP_CUDA_OPERATORS)
foreach(source ${LOCKSTEP_CUDA_SOURCES})
  string(REGEX REPLACE "\\.cu$" ".cpp" operator ${source})
  if(EXISTS ${operator})
    list(APPEND LOCKSTEP_CUDA_OPERATORS ${operator})
  endif()
endforeach()
