#include "planning/cluster_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "installation.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kEnding = ".json";

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kEnding) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string cluster_folder(const std::string& command_path) {
  return (fs::path(command_path).parent_path().parent_path() / "share/spillway/clusters").string();
}

std::string cluster_path(const std::string& option, const std::string& word,
                         const std::string& folder) {
  std::error_code error;
  const bool is_path = word.find('/') != std::string::npos || word.ends_with(kEnding);
  if (is_path || fs::is_regular_file(word, error)) return word;
  std::string known;
  for (const std::string& name : names_in(folder)) {
    if (name == word) return (fs::path(folder) / (name + kEnding)).string();
    (known += ' ') += name;
  }
  throw ConfigError("{} {} is no file, and {} has no description of that name ({})", option,
                    shown_text(word), folder,
                    known.empty() ? "it has none: name a file" : "there are:" + known);
}

ValueKind<std::string> clusters() {
  const std::string folder = cluster_folder(own_path());
  const auto read = [folder](const std::string& option, const std::string& word) {
    return cluster_path(option, word, folder);
  };
  return {"FILE|NAME", read, names_in(folder)};
}

cluster::Cluster read_cluster(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const std::string text = topology::text_of_file(path);
  try {
    return cluster::parse_cluster(text, path, [&](const std::string& file) {
      return topology::text_of_file((folder / file).string());
    });
  } catch (const ConfigError& error) {
    throw ConfigError(
        "{}",
        with_next_step(error.what(), message("compare it with those in {}, or name one of them",
                                             cluster_folder(own_path()))));
  }
}

}  // namespace spillway::cli
