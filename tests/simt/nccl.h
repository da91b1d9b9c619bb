// What tests ask of tests/simt's NCCL beside what it is.
#pragma once

namespace simt {

// From now on, until it is -1 again, every communicator in which a process has this rank of the
// communicator of all has an asynchronous error there.
void break_nccl(int rank);

}  // namespace simt
