# -DLOCKSTEP_CUDA=ON: the compiler of .cu files. LOCKSTEP_WITH_CUDA=1 tells sources that kernels for
# the device are compiled in; while there are none it stays unset, and the binary is the CPU one.
if(LOCKSTEP_CUDA)
  # "90a-real" becomes -gencode arch=compute_90a,code=sm_90a; -arch=sm_90a alone fails with nvcc 13.
  list(TRANSFORM LOCKSTEP_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "LOCKSTEP_CUDA needs nvcc, on PATH or below CUDA_HOME; "
        "the preset `cpu` builds without it")
    endif()
  endif()
  enable_language(CUDA)
  file(GLOB cuda_sources ${CMAKE_SOURCE_DIR}/kernels/*.cu)
  if(cuda_sources)
    target_compile_definitions(lockstep_flags INTERFACE LOCKSTEP_WITH_CUDA=1)
  else()
    message(NOTICE "LOCKSTEP_CUDA: the toolkit works, and there are no CUDA kernels yet: this builds "
      "the CPU backend only")
  endif()
endif()
