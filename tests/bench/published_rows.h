// Published throughputs of other engines (tests/bench/published/*.csv), as models and layouts. If a
// source leaves a setting open, it is chosen as a user of the engine would.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/published_run.h"

namespace lockstep {

struct PublishedRow {
  int number = 0;  // from 1
  std::string model_name, gpu, engine;
  PublishedModel model;
  PublishedLayout layout;        // a size that the source does not say is 1; see `says`
  double tokens_per_second = 0;  // a GPU, as published
  bool is_stated = false;        // the whole layout
  bool says_recompute = false;
  std::map<std::string, std::string> says;  // columns of the file
  std::string problem;                      // why the row has no price; empty: it has one

  bool has(const std::string& column) const { return !says.at(column).empty(); }
  double host_gbit_per_second = 0;  // of all NICs of a host; 0: the GPU's usual one
  Hardware hardware() const;
};

// A row that states too little for a price comes with its problem. Throws Error if the file cannot
// be read.
std::vector<PublishedRow> read_published_rows(const std::filesystem::path& csv);

// Bytes of a GPU: state, activations of the micro-batches in flight, logits, and 4 GB for the rest.
double memory_bytes(const PublishedModel& model, const PublishedLayout& layout);

// Returns the layout of the source. Settings that it leaves open are those of the fastest layout
// that fits in 0.97 of the memory. If none fits, the layout with the least memory is returned.
// Throws Error with the problem of a row that cannot be estimated.
PublishedLayout resolved_layout(const PublishedRow& row, const PublishedConstants& constants = {});

// Korthikanti et al. 2022 (arXiv 2205.05198), tables 3 and 5: seconds of a batch on A100, with all
// recomputed, and with attention alone and sequence parallelism.
struct KorthikantiCase {
  const char* name;
  PublishedModel model;
  PublishedLayout layout;
  double full_seconds, selective_seconds;
};
std::vector<KorthikantiCase> korthikanti_cases();

}  // namespace lockstep
