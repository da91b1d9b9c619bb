# -DLOCKSTEP_HOST_BUILD=DIR: DIR is a build of the same sources without CUDA. A build with CUDA links the
# libraries that do not depend on CUDA from DIR, after it has updated them there. ./test.sh uses this for the
# preset cuda.
if(LOCKSTEP_HOST_BUILD AND NOT LOCKSTEP_CUDA)
  message(FATAL_ERROR "LOCKSTEP_HOST_BUILD needs LOCKSTEP_CUDA")
endif()
set(LOCKSTEP_HOST_LIBRARIES core core_system dist_topology dist_job model data data_tokenizer data_remote data_pack
  checkpoint train train_step train_observe train_interop train_infer train_run launch_plan launch_preflight
  launch_report launch_watch)
set_property(GLOBAL PROPERTY lockstep_host_archives "")

# lockstep_host_library(TARGET) adds a library without sources that links the archive of TARGET in that build.
function(lockstep_host_library target)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(archive ${LOCKSTEP_HOST_BUILD}/${folder}/lib${target}.a)
  set(source ${CMAKE_BINARY_DIR}/generated/empty.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// see cmake/host_build.cmake\n")
  add_library(${target} STATIC ${source})
  add_library(${target}_host STATIC IMPORTED)
  set_target_properties(${target}_host PROPERTIES IMPORTED_LOCATION ${archive}
    INTERFACE_LINK_LIBRARIES ${target})  # its dependencies are those of TARGET
  target_link_libraries(${target} PUBLIC ${target}_host)
  add_dependencies(${target} lockstep_host)
  set_property(GLOBAL APPEND PROPERTY lockstep_host_archives ${archive})
endfunction()

# lockstep_host_build() adds the target that updates these archives. Call it after the libraries.
function(lockstep_host_build)
  get_property(archives GLOBAL PROPERTY lockstep_host_archives)
  add_custom_target(lockstep_host
    COMMAND ${CMAKE_COMMAND} --build ${LOCKSTEP_HOST_BUILD} --target lockstep
    BYPRODUCTS ${archives} USES_TERMINAL VERBATIM)
endfunction()
