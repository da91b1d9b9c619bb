// Faults of the simulated NCCL, for tests.
#pragma once

namespace simt {

// Breaks a rank, numbered as in the communicator of all ranks, until the next call; -1: none. On
// this rank, all its communicators have an asynchronous error.
void break_nccl(int rank);

// The next collective of this rank returns, as in NCCL, but its stream waits for the other ranks
// until the communicator is aborted.
void hang_nccl(int rank);

// The CUDA version that the driver supports from now on, as in cudaDriverGetVersion().
void set_driver(int version);

}  // namespace simt
