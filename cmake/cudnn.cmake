# cuDNN's fused attention: optional in a build with CUDA. Its frontend is header-only; ./test.sh puts
# it into build/cudnn_frontend, pip into a directory of Python's. The library is loaded at run time.
# -DLOCKSTEP_CUDNN_FRONTEND=DIR names the directory of cudnn_frontend.h, =OFF builds without.
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
  message(STATUS "cuDNN attention: off, there is no cudnn_frontend.h (docs/dependencies.md)")
elseif(NOT LOCKSTEP_CUDNN_HEADERS)
  message(STATUS "cuDNN attention: off, there is no cudnn.h (docs/dependencies.md)")
else()
  set(LOCKSTEP_CUDNN ON)
  message(STATUS "cuDNN attention: on, ${LOCKSTEP_CUDNN_FRONTEND}, ${LOCKSTEP_CUDNN_HEADERS}")
endif()
