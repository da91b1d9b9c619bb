# Finds the libraries of the system, see docs/dependencies.md. If one is missing, an error names its package,
# because a compiler reports only a missing header.
include(CheckIncludeFileCXX)
function(lockstep_needs header package)
  check_include_file_cxx(${header} LOCKSTEP_HAVE_${package} ${ARGN})
  if(NOT LOCKSTEP_HAVE_${package})
    unset(LOCKSTEP_HAVE_${package} CACHE)  # so that the next run checks again
    message(FATAL_ERROR "${header} not found; on Debian: apt-get install ${package}")
  endif()
endfunction()
if(NOT CMAKE_CROSSCOMPILING)
  lockstep_needs(CLI/CLI.hpp libcli11-dev)
  lockstep_needs(nlohmann/json.hpp nlohmann-json3-dev)
  lockstep_needs(toml++/toml.h libtomlplusplus-dev)
  lockstep_needs(xxhash.h libxxhash-dev)
  lockstep_needs(curl/curl.h libcurl4-openssl-dev)  # only the headers: the library is loaded at run time
  lockstep_needs(openssl/hmac.h libssl-dev)
  lockstep_needs(pcre2.h libpcre2-dev -DPCRE2_CODE_UNIT_WIDTH=8)
  lockstep_needs(utf8proc.h libutf8proc-dev)
  lockstep_needs(zlib.h zlib1g-dev)
  lockstep_needs(zstd.h libzstd-dev)
  set(OPENSSL_USE_STATIC_LIBS TRUE)  # for hosts without OpenSSL, or with another version
  find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
  find_library(LOCKSTEP_PCRE2 NAMES libpcre2-8.a pcre2-8 REQUIRED)
  find_library(LOCKSTEP_UTF8PROC NAMES libutf8proc.a utf8proc REQUIRED)
  find_library(LOCKSTEP_ZLIB NAMES libz.a z REQUIRED)
  find_library(LOCKSTEP_ZSTD NAMES libzstd.a zstd REQUIRED)
  mark_as_advanced(LOCKSTEP_PCRE2 LOCKSTEP_UTF8PROC LOCKSTEP_ZLIB LOCKSTEP_ZSTD)
endif()
