# lockstep_flags: the compiler options of every source.
add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR})
set(cxx $<COMPILE_LANGUAGE:CXX>)
set(cuda $<COMPILE_LANGUAGE:CUDA>)  # -ftz flushes denormals to zero, as CPU streams do
target_compile_options(lockstep_flags INTERFACE
  $<${cxx}:-Wall;-Wextra;-Wshadow;-Wno-unknown-pragmas>
  $<${cuda}:--expt-relaxed-constexpr;-ftz=true;-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>)
if(CMAKE_UNITY_BUILD)  # g++ treats an included source like a header
  target_compile_options(lockstep_flags INTERFACE
    $<$<AND:${cxx},$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
endif()
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_flags INTERFACE $<${cxx}:-Werror>
    $<${cuda}:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(lockstep_flags INTERFACE $<${cxx}:-march=x86-64-v2>
    $<${cuda}:-Xcompiler=-march=x86-64-v2>)
endif()
if(LOCKSTEP_SANITIZE)
  # With sanitizers g++ gives false warnings of uninitialized values: gcc.gnu.org/PR105562
  target_compile_options(lockstep_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_compile_options(lockstep_flags INTERFACE
    -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# lockstep_library(FOLDER SOURCES...) adds the library of the folder that calls it, e.g. lockstep_data_remote
# for data/remote.
function(lockstep_library folder)
  string(REPLACE "/" "_" name ${folder})
  if(LOCKSTEP_HOST_BUILD AND name IN_LIST LOCKSTEP_HOST_LIBRARIES)
    lockstep_host_library(lockstep_${name})
  else()
    add_library(lockstep_${name} STATIC ${ARGN})
  endif()
  set_target_properties(lockstep_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags)
endfunction()
