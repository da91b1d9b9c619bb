// The line that a person watches a run by.
#pragma once

#include <string>

#include "train/observe/step_report.h"

namespace lockstep {

// step 1200/9536 12.6% | loss 3.2145 (+0.3z) | grad 0.41 | lr 5.9e-4 |  412 ms | 2.54M tok/s | ...
// Fields keep their width from step to step. What is unknown is left blank, "n/a" for MFU, which is
// by the causal count; behind it what was planned, where there is a plan. `colour`: skipped steps
// red, and z-scores beyond 3 yellow.
std::string step_line(const StepReport& report, bool colour);

// "step 1200/9536       | validation loss 3.1987"
std::string validation_line(const StepReport& report);

// Prints the step's line, and the validation's where there was one, to standard error; in colour
// where that is a terminal that takes it.
void print_step(const StepReport& report);

}  // namespace lockstep
