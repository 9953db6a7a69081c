#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/clock.h"

namespace spillway::profile {

/// A layer of a PipeDream graph.
struct PipedreamLayer {
  std::string id;
  std::string kind;       ///< "Conv2d"
  std::string arguments;  ///< What stands behind it in parentheses.
  std::uint64_t number = 0;
  std::size_t line = 0;
  Duration forward{0};
  Duration backward{0};
  std::vector<std::uint64_t> outputs;  ///< Bytes of each.
  std::uint64_t parameters = 0;        ///< Bytes.
  std::vector<std::size_t> inputs;     ///< Layers, in the order of the edges.
};

/// The layers in an order to run in. Throws ConfigError that begins with file and line for what is
/// no such graph.
std::vector<PipedreamLayer> read_pipedream_graph(std::string_view text, const std::string& file);

}  // namespace spillway::profile
