// How far do steps scale, on machines that nobody has here? Prints a table of the README.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "scaling.h"
#include "spillway/base/error.h"

namespace spillway::scaling {

cluster::Cluster cluster_named(const std::string& folder, const std::string& name,
                               std::uint32_t nodes) {
  const std::string path = folder + "/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw IoError("{} cannot be read (name the folder bindings/clusters)", path);
  std::ostringstream text;
  text << file.rdbuf();
  cluster::Cluster cluster = cluster::parse_cluster(text.str(), path);
  cluster.nodes = nodes;
  return cluster;
}

}  // namespace spillway::scaling

namespace {

struct Part {
  std::string_view name;
  void (*print)(const std::string& folder);
};
constexpr Part kParts[] = {{"gems", spillway::scaling::print_gems},
                           {"strong", spillway::scaling::print_strong},
                           {"slides", spillway::scaling::print_slides},
                           {"out-of-core", spillway::scaling::print_out_of_core},
                           {"simulator", spillway::scaling::print_simulator},
                           {"curves", spillway::scaling::print_curves}};

int usage(const char* program) {
  std::fprintf(stderr, "usage: %s bindings/clusters PART (", program);
  for (const Part& part : kParts)
    std::fprintf(stderr, " %.*s", static_cast<int>(part.name.size()), part.name.data());
  std::fprintf(stderr, " )\n");
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return usage(arguments[0]);
  for (const Part& part : kParts) {
    if (part.name != arguments[2]) continue;
    try {
      part.print(arguments[1]);
      return 0;
    } catch (const spillway::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  return usage(arguments[0]);
}
