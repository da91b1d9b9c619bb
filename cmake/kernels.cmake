# lockstep_cpu_kernels(TARGET SOURCES...): compiles each *_cpu.cpp once per CpuLevel. The level sets
# only a macro: kernels/cpu_begin.h turns it into instructions for the code behind it.
function(lockstep_cpu_kernels target)
  set(levels 0)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(levels 0 1 2 3)
  endif()
  foreach(level ${levels})
    if(LOCKSTEP_HOST_BUILD AND target MATCHES "^lockstep_")  # what the program is made of
      set(objects ${ARGN})
      lockstep_host_objects(objects ${target}_cpu_${level})
      target_sources(${target} PRIVATE ${objects})
      continue()
    endif()
    add_library(${target}_cpu_${level} OBJECT ${ARGN})
    target_link_libraries(${target}_cpu_${level} PRIVATE lockstep_flags)
    target_compile_definitions(${target}_cpu_${level} PRIVATE LOCKSTEP_CPU_LEVEL=${level})
    target_compile_options(${target}_cpu_${level} PRIVATE
      -Wno-psabi -ffp-contract=fast -fno-math-errno -fno-trapping-math)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cpu_${level}>)
  endforeach()
endfunction()
