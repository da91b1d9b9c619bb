// A build without MPI.
#include "dist/mpi_world.h"

namespace lockstep {

bool has_mpi() {
  return false;
}

std::unique_ptr<World> start_mpi() {
  throw Error(
      "this lockstep was built without MPI; install libopenmpi-dev, and configure the build again");
}

}  // namespace lockstep
