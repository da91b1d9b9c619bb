// StepLine: the line that the terminal shows for a step.
#pragma once

#include <string>

#include "train/observe/step_report.h"

namespace lockstep {

// step 1200/9536 12.6% | loss 3.2145 (+0.3z) | grad 0.41 | lr 5.9e-4 |  412 ms | 2.54M tok/s | ...
// Fields keep their width from step to step. An unknown value is blank, or "n/a" for MFU. MFU uses
// the causal count, and the planned MFU follows if there is a plan. `colour` makes skipped steps
// red and z-scores beyond 3 yellow.
std::string step_line(const StepReport& report, bool colour);

// "step 1200/9536       | validation loss 3.1987"
std::string validation_line(const StepReport& report);

// Prints the line of the step, and of the validation if there was one, to standard error. Uses
// colour if that is a terminal with colours.
void print_step(const StepReport& report);

}  // namespace lockstep
