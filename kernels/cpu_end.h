// cpu_end.h closes cpu_begin.h.
#pragma GCC pop_options
