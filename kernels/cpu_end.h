// cpu_end: closes cpu_begin.h.
#pragma GCC pop_options
