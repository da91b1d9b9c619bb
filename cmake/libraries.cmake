# Libraries from the system, see docs/dependencies.md: named here when one is missing, for
# a compiler says only that a file is not there.
include(CheckIncludeFileCXX)
function(lockstep_needs header package)
  check_include_file_cxx(${header} LOCKSTEP_HAVE_${package})
  if(NOT LOCKSTEP_HAVE_${package})
    unset(LOCKSTEP_HAVE_${package} CACHE)  # looked for again when it is installed
    message(FATAL_ERROR "${header} is not there; on Debian: apt-get install ${package}")
  endif()
endfunction()
if(NOT CMAKE_CROSSCOMPILING)
  lockstep_needs(CLI/CLI.hpp libcli11-dev)
  lockstep_needs(nlohmann/json.hpp nlohmann-json3-dev)
  lockstep_needs(toml++/toml.h libtomlplusplus-dev)
  lockstep_needs(xxhash.h libxxhash-dev)
  lockstep_needs(curl/curl.h libcurl4-openssl-dev)  # its headers: it is loaded at run time
  lockstep_needs(openssl/hmac.h libssl-dev)
  set(OPENSSL_USE_STATIC_LIBS TRUE)  # a binary that starts where there is none, or another version
  find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
endif()
