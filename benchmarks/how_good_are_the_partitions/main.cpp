// How good are the partitions? Prints the figures as JSON; main.py makes tables of them.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "figures.h"
#include "spillway/base/error.h"

namespace {

using namespace spillway;

double parts_in(const std::string& text) {
  const double parts = std::strtod(text.c_str(), nullptr);
  if (!(parts >= 1.0) || parts > 1e6)
    throw ConfigError("'{}' is no number of parts; give one from 1 to a million", text);
  return parts;
}

nlohmann::ordered_json figures(const std::vector<std::string>& words, bool is_quick) {
  const auto word = [&](std::size_t place) {
    return place < words.size() ? words[place] : std::string();
  };
  if (words[0] == "plans") return quality::published_plans();
  quality::Workload workload = quality::workload_from(word(1), word(2));
  if (words[0] == "cells") return quality::cells(workload, is_quick);
  if (words[0] == "piper") return quality::piper_optima(workload);
  if (words[0] == "batch") return quality::largest_batches(workload, is_quick);
  if (words[0] == "layers") return quality::largest_models(workload, word(3), is_quick);
  if (words[0] == "without_memory_reduction") {
    if (words.size() > 4)
      workload.chain = partition::scaled(workload.chain, 1.0 / parts_in(word(4)));
    return quality::largest_models_without_reduction(workload, word(3), is_quick);
  }
  throw ConfigError(
      "there are no figures '{}'; ask for cells, batch, layers, without_memory_reduction, "
      "piper or plans",
      words[0]);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> words;
  bool is_quick = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    is_quick |= word == "--quick";
    if (word != "--quick") words.emplace_back(word);
  }
  if (words.empty()) {
    std::fprintf(
        stderr,
        "usage: %s [--quick] cells|batch|layers|without_memory_reduction|piper SOURCE [FILE] "
        "[BLOCK] [PARTS]\n"
        "       %s plans\n"
        "SOURCE is pipedream, piper or vpipe; BLOCK how the name of repeated layers begins,\n"
        "PARTS into how many micro-batches the published one is divided.\n",
        arguments[0], arguments[0]);
    return 2;
  }
  try {
    std::printf("%s\n", figures(words, is_quick).dump().c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
