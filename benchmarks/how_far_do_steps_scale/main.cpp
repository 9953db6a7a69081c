// How far do steps scale, on machines that nobody has here? Prints the tables of the README.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "scaling.h"
#include "spillway/base/error.h"

namespace spillway::scaling {

planner::Cluster cluster_named(const std::string& folder, const std::string& name,
                               std::uint32_t nodes) {
  const std::string path = folder + "/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw IoError("{} cannot be read (name the folder bindings/clusters)", path);
  std::ostringstream text;
  text << file.rdbuf();
  planner::Cluster cluster = planner::parse_cluster(text.str(), path);
  cluster.nodes = nodes;
  return cluster;
}

}  // namespace spillway::scaling

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s bindings/clusters [gems|out-of-core|simulator]\n",
                 arguments[0]);
    return 2;
  }
  const std::string folder = arguments[1];
  const std::string_view only = count > 2 ? arguments[2] : "";
  try {
    if (only.empty() || only == "gems") spillway::scaling::print_gems(folder);
    if (only.empty() || only == "out-of-core") spillway::scaling::print_out_of_core(folder);
    if (only.empty() || only == "simulator") spillway::scaling::print_simulator(folder);
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
