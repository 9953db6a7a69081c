// awkward: a plain LibTorch program. One run does one awkward thing and writes down what came out
// of it; two runs agree exactly when every byte agrees.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "case.h"
#include "measure.h"
#include "run.h"

namespace {

/// A folder of its own below the temporary folder, removed with everything in it at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "awkward-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw std::filesystem::filesystem_error("cannot create a scratch folder (set TMPDIR)",
                                              pattern,
                                              std::error_code(errno, std::generic_category()));
    }
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Options {
  std::string name;
  std::string out;
  std::uint64_t seed = 1;
  int threads = 2;
  bool list = false;
  bool measure = false;
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
  const ScratchFolder scratch;
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  awkward::Run run(options.seed, options.threads, scratch.path());
  entry.body(run);
  write_report(options.out, run.report());
  if (options.measure) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cerr << entry.name << ": " << awkward::measurement() << ", " << took.count() << " s\n";
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argument_count, char** arguments) {
  Options options;
  CLI::App app("Does one awkward thing with LibTorch and prints a digest of every result.");
  app.add_option("case", options.name, "Name of the case; --list shows them");
  app.add_option("--out", options.out, "File for the digest (default: standard output)");
  app.add_option("--seed", options.seed, "Seed of the default generator")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of LibTorch")->capture_default_str();
  app.add_flag("--list", options.list, "Print the names of all cases and what they protect");
  app.add_flag("--measure", options.measure,
               "Print peak bytes of large storages, the largest operator and the time");
  CLI11_PARSE(app, argument_count, arguments);
  if (options.list) {
    for (const awkward::Case& entry : awkward::cases()) {
      std::cout << entry.name << '\t' << entry.protects << '\n';
    }
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
