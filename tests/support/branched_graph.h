#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// A graph as PipeDream's profiler writes it: a layer, branches of one layer each that take so many
/// milliseconds forward and twice as many backward, and a layer that reads all of them. Everything
/// keeps its inputs and outputs: 8 MiB each, and of the last one more than all gradients that it
/// sends back.
inline std::string branched_graph(const std::vector<double>& milliseconds) {
  std::string text;
  const auto add = [&](std::size_t number, const std::string& kind, double time,
                       std::uint64_t bytes) {
    text += "node" + std::to_string(number) + " -- " + kind +
            " -- forward_compute_time=" + std::to_string(time) +
            ", backward_compute_time=" + std::to_string(2 * time) +
            ", activation_size=" + std::to_string(bytes) + ".0, parameter_size=4194304.0\n";
  };
  const std::size_t join = milliseconds.size() + 2;
  add(1, "Stem", 0.125, 8 << 20);
  for (std::size_t i = 0; i < milliseconds.size(); ++i)
    add(i + 2, "Branch", milliseconds[i], 8 << 20);
  add(join, "Join", 0.125, join << 23);
  for (std::size_t i = 2; i < join; ++i)
    text += "\tnode1 -- node" + std::to_string(i) + "\n\tnode" + std::to_string(i) + " -- node" +
            std::to_string(join) + "\n";
  return text;
}

}  // namespace spillway
