// Reads paths from standard input, one a line, and says of each what the reader makes of the file:
// "NAME DTYPE SHAPE OFFSET BYTES" for every tensor, or "refused: WHY"; then an empty line.
#include <iostream>

#include "checkpoint/safetensors.h"

int main() {
  std::string path;
  while (std::getline(std::cin, path)) {
    try {
      const lockstep::SafetensorsFile file(path);
      for (const auto& tensor : file.tensors()) {
        std::cout << tensor.name << " " << lockstep::name(tensor.type) << " [";
        for (const auto size : tensor.shape)
          std::cout << size << ",";
        std::cout << "] " << tensor.offset << " " << tensor.bytes << "\n";
      }
    } catch (const lockstep::DataError& error) {
      std::cout << "refused: " << error.what() << "\n";
    }
    std::cout << std::endl;
  }
  return 0;
}
