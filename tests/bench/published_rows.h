// Published throughputs of other engines (tests/bench/published/throughput.csv), as models and
// layouts; and, where a source is silent, what a user of the engine would fill in.
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

// Of a GPU: states, activations of the micro-batches under way, logits, and 4 GB of everything
// else.
double memory_bytes(const PublishedModel& model, const PublishedLayout& layout);

// What the source states; of what it leaves open the fastest that fits in 0.97 of the memory, or,
// where none does, what needs least. Throws Error with the problem of a row that has no price.
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
