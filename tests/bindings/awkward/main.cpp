// awkward: a plain LibTorch program. One run does one awkward thing and writes down what came out
// of it; two runs agree exactly when every byte agrees.

#include <getopt.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "case.h"
#include "measure.h"
#include "run.h"
#include "support/temporary_directory.h"

namespace {

struct Options {
  std::string name;
  std::string out;
  std::uint64_t seed = 1;
  int threads = 2;
  at::Device device = at::kCPU;
  bool list = false;
  bool measure = false;
  awkward::StepStyle style = awkward::StepStyle::kAsTheyAre;
};

const awkward::Case* find_case(const std::string& name) {
  for (const awkward::Case& entry : awkward::cases()) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

void write_report(const std::string& out, const std::string& report) {
  if (out.empty()) {
    std::cout << report << std::flush;
    return;
  }
  std::ofstream file(out, std::ios::trunc);
  file << report << std::flush;
  if (!file) {
    throw std::runtime_error("cannot write the report to '" + out + "'");
  }
}

int run_case(const awkward::Case& entry, const Options& options) {
  if (options.measure) {
    awkward::start_measuring();
  }
  const auto begin = std::chrono::steady_clock::now();
  const spillway::TemporaryDirectory scratch;
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  awkward::Run run(options.seed, options.threads, scratch.path(), options.style, options.device);
  entry.body(run);
  write_report(options.out, run.report());
  if (options.measure) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cerr << entry.name << ": " << awkward::measurement() << ", " << took.count() << " s\n";
  }
  return EXIT_SUCCESS;
}

constexpr const char* kUsage =
    "usage: awkward --list\n"
    "       awkward CASE [--out FILE] [--seed N] [--threads N] [--measure]\n"
    "               [--device NAME] [--announce-steps | --more-to-drop]\n"
    "Does one awkward thing with LibTorch and writes a digest of every result.\n"
    "  --list       print the names of all cases and what they protect\n"
    "  --out FILE   write the digest there (default: standard output)\n"
    "  --seed N     seed of the default generator (default: 1)\n"
    "  --threads N  threads of LibTorch (default: 2)\n"
    "  --device D   where the tensors are, as cuda (default: cpu)\n"
    "  --measure    print peak bytes of large storages, the largest operator and the time\n"
    "  --announce-steps\n"
    "               begin steps as trainers do, also where the case has no optimizer\n"
    "  --more-to-drop\n"
    "               train something around each such step, and make other models deeper\n";

/// Reads the whole of `text` as a number, or throws with the name of the option.
int number_in(const char* option, const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > 1'000'000) {
    throw std::invalid_argument(std::string(option) + " needs a number, not '" + text + "'");
  }
  return static_cast<int>(value);
}

Options options_in(int argument_count, char** arguments) {
  static constexpr std::array<option, 9> kOptions{{{"list", no_argument, nullptr, 'l'},
                                                   {"out", required_argument, nullptr, 'o'},
                                                   {"seed", required_argument, nullptr, 's'},
                                                   {"threads", required_argument, nullptr, 't'},
                                                   {"measure", no_argument, nullptr, 'm'},
                                                   {"device", required_argument, nullptr, 'v'},
                                                   {"announce-steps", no_argument, nullptr, 'a'},
                                                   {"more-to-drop", no_argument, nullptr, 'd'},
                                                   {nullptr, 0, nullptr, 0}}};
  Options options;
  int letter = 0;
  while ((letter = getopt_long(argument_count, arguments, "", kOptions.data(), nullptr)) != -1) {
    switch (letter) {
      case 'l': options.list = true; break;
      case 'o': options.out = optarg; break;
      case 's': options.seed = static_cast<std::uint64_t>(number_in("--seed", optarg)); break;
      case 't': options.threads = std::max(1, number_in("--threads", optarg)); break;
      case 'm': options.measure = true; break;
      case 'v': options.device = at::Device(optarg); break;
      case 'a': options.style = awkward::StepStyle::kAnnounced; break;
      case 'd': options.style = awkward::StepStyle::kMoreToDrop; break;
      default: throw std::invalid_argument("unknown option");
    }
  }
  if (optind + (options.list ? 0 : 1) != argument_count) {
    throw std::invalid_argument("one case is needed");
  }
  options.name = options.list ? "" : arguments[optind];
  return options;
}

void list_cases() {
  for (const awkward::Case& entry : awkward::cases()) {
    std::cout << entry.name << '\t' << entry.protects << '\n';
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  Options options;
  try {
    options = options_in(argument_count, arguments);
  } catch (const std::invalid_argument& error) {
    std::cerr << "awkward: " << error.what() << '\n' << kUsage;
    return 2;
  }
  if (options.list) {
    list_cases();
    return EXIT_SUCCESS;
  }
  const awkward::Case* const entry = find_case(options.name);
  if (entry == nullptr) {
    std::cerr << "awkward: there is no case '" << options.name << "'; --list shows them\n";
    return 2;
  }
  try {
    return run_case(*entry, options);
  } catch (const std::exception& error) {
    std::cerr << "awkward: case " << options.name << " failed: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
