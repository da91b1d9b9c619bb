// allocations(): counts every operator new of the program that links allocations.cpp, so that a
// test can state that a step makes none.
#pragma once

#include <cstdint>

namespace lockstep::testing {

std::int64_t allocations();  // so far, by all threads

}  // namespace lockstep::testing
