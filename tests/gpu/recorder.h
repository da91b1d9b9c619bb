// What the stand-ins of CUDA's libraries share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// A line of the record, with the calling thread in front.
[[gnu::format(printf, 1, 2)]] void record(const char* format, ...);

void* device_memory(std::size_t bytes);  // that is not there

std::string record_name();  // of this process's file

// Handles are small numbers, so that two runs and two steps are alike.
std::uintptr_t next_number();
template <class Handle>
Handle next_handle() {
  return reinterpret_cast<Handle>(next_number());
}
