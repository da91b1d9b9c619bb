# Finds the headers of cuDNN and of its frontend, for fused attention. It is optional in a build with CUDA.
# The frontend has only headers: ./test.sh puts them into build/cudnn_frontend, pip into a directory of
# Python. The library is loaded at run time. -DLOCKSTEP_CUDNN_FRONTEND=DIR sets the directory of
# cudnn_frontend.h; -DLOCKSTEP_CUDNN_FRONTEND=OFF builds without it.
if(NOT LOCKSTEP_CUDA)
  return()
endif()
find_package(Python3 QUIET COMPONENTS Interpreter)
set(site "")
if(Python3_FOUND)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(LOCKSTEP_CUDNN_FRONTEND cudnn_frontend.h
  HINTS ${CMAKE_SOURCE_DIR}/build/cudnn_frontend/include ${site}/include)
find_path(LOCKSTEP_CUDNN_HEADERS cudnn.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${site}/nvidia/cudnn/include)
mark_as_advanced(LOCKSTEP_CUDNN_HEADERS)
if(NOT LOCKSTEP_CUDNN_FRONTEND)
  message(STATUS "cuDNN attention: off, cudnn_frontend.h not found (docs/dependencies.md)")
elseif(NOT LOCKSTEP_CUDNN_HEADERS)
  message(STATUS "cuDNN attention: off, cudnn.h not found (docs/dependencies.md)")
else()
  set(LOCKSTEP_CUDNN ON)
  message(STATUS "cuDNN attention: on, ${LOCKSTEP_CUDNN_FRONTEND}, ${LOCKSTEP_CUDNN_HEADERS}")
endif()
