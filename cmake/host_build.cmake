# -DLOCKSTEP_HOST_BUILD=DIR: a build with CUDA takes the libraries that CUDA changes nothing of from DIR, a build
# of the same sources without it, and brings them up to date there first. ./test.sh builds the preset cuda so.
if(LOCKSTEP_HOST_BUILD AND NOT LOCKSTEP_CUDA)
  message(FATAL_ERROR "LOCKSTEP_HOST_BUILD is for a build with LOCKSTEP_CUDA")
endif()
set(LOCKSTEP_HOST_LIBRARIES core core_system dist_topology dist_job model data data_tokenizer data_remote data_pack
  checkpoint train train_step train_observe train_interop train_infer train_run launch_plan launch_preflight
  launch_report launch_watch)
set_property(GLOBAL PROPERTY lockstep_host_archives "")

# lockstep_host_library(TARGET): a library without sources that links what TARGET is in that build.
function(lockstep_host_library target)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(archive ${LOCKSTEP_HOST_BUILD}/${folder}/lib${target}.a)
  set(source ${CMAKE_BINARY_DIR}/generated/empty.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// see cmake/host_build.cmake\n")
  add_library(${target} STATIC ${source})
  add_library(${target}_host STATIC IMPORTED)
  set_target_properties(${target}_host PROPERTIES IMPORTED_LOCATION ${archive}
    INTERFACE_LINK_LIBRARIES ${target})  # what it needs is what TARGET is linked with
  target_link_libraries(${target} PUBLIC ${target}_host)
  add_dependencies(${target} lockstep_host)
  set_property(GLOBAL APPEND PROPERTY lockstep_host_archives ${archive})
endfunction()

# lockstep_host_build(): after the libraries, what brings their archives up to date.
function(lockstep_host_build)
  get_property(archives GLOBAL PROPERTY lockstep_host_archives)
  add_custom_target(lockstep_host
    COMMAND ${CMAKE_COMMAND} --build ${LOCKSTEP_HOST_BUILD} --target lockstep
    BYPRODUCTS ${archives} USES_TERMINAL VERBATIM)
endfunction()
