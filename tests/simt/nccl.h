// Tests break the simulated NCCL with this.
#pragma once

namespace simt {

// Breaks a rank, numbered as in the communicator of all ranks, until the next call; -1: none. On
// this rank, all its communicators have an asynchronous error.
void break_nccl(int rank);

}  // namespace simt
