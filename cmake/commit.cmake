# Writes OUTPUT, a header that defines LOCKSTEP_COMMIT, if its commit is not the current one. cmake -P
# runs this file in every build: --version is then right, and sources are compiled again only if needed.
set(commit unknown)
find_program(git git)
if(git)
  execute_process(COMMAND ${git} describe --always --dirty=+changes --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
set(text "#pragma once\n#define LOCKSTEP_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} ${text})
endif()
