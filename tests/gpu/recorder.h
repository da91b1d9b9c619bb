// Shared by the replacements of CUDA's libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Writes a line of the record, which begins with the calling thread.
[[gnu::format(printf, 1, 2)]] void record(const char* format, ...);

void* device_memory(std::size_t bytes);  // of the GPU that does not exist

std::string record_name();  // the name of this process's file

// Handles are small numbers, so that two runs and two steps have equal lines.
std::uintptr_t next_number();
template <class Handle>
Handle next_handle() {
  return reinterpret_cast<Handle>(next_number());
}
