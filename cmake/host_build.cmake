# -DLOCKSTEP_HOST_BUILD=DIR: a build with CUDA takes the objects that CUDA changes nothing of from DIR, a build of
# the same sources without it, and brings them up to date there first. ./test.sh builds the preset cuda so: the
# objects are half of its time.
if(LOCKSTEP_HOST_BUILD AND NOT LOCKSTEP_CUDA)
  message(FATAL_ERROR "LOCKSTEP_HOST_BUILD is for a build with LOCKSTEP_CUDA")
endif()
set_property(GLOBAL PROPERTY lockstep_host_objects "")

# lockstep_host_objects(LIST TARGET): what LIST, sources of TARGET, is in that build: objects, but for
# LOCKSTEP_OWN_SOURCES, which are compiled here.
set(LOCKSTEP_OWN_SOURCES plan_verb.cpp version.cpp)
foreach(source ${LOCKSTEP_CUDA_OPERATORS})
  cmake_path(GET source FILENAME source)
  list(APPEND LOCKSTEP_OWN_SOURCES ${source})
endforeach()
function(lockstep_host_objects list target)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(found)
  foreach(source ${${list}})
    if(source IN_LIST LOCKSTEP_OWN_SOURCES)
      list(APPEND found ${source})
    else()
      set(object ${LOCKSTEP_HOST_BUILD}/${folder}/CMakeFiles/${target}.dir/${source}.o)
      list(APPEND found ${object})
      set_property(GLOBAL APPEND PROPERTY lockstep_host_objects ${object})
      set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    endif()
  endforeach()
  set(${list} ${found} PARENT_SCOPE)
endfunction()

# lockstep_host_build(): after the libraries, what brings their objects up to date.
function(lockstep_host_build)
  get_property(objects GLOBAL PROPERTY lockstep_host_objects)
  add_custom_target(lockstep_host
    COMMAND ${CMAKE_COMMAND} --build ${LOCKSTEP_HOST_BUILD} --target lockstep
    BYPRODUCTS ${objects} USES_TERMINAL VERBATIM)
endfunction()
