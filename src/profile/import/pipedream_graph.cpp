#include "pipedream_graph.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "layer_graph.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "trace_builder.h"
#include "trace_lines.h"

namespace spillway::profile {
namespace {

constexpr double kMostMilliseconds = 1e12;

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

bool is_no_letter(char byte) { return byte < ' ' || byte > '~'; }

class GraphReader {
 public:
  GraphReader(std::string_view text, const std::string& file) : lines_(text, file) {}

  std::vector<PipedreamLayer> read() {
    while (lines_.next()) {
      const std::string_view line = lines_.line();
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      const bool is_edge = line.front() == '\t';
      if (std::any_of(line.begin() + (is_edge ? 1 : 0), line.end(), is_no_letter))
        throw ConfigError("{}: the line holds bytes that are no text", lines_.where());
      if (is_edge)
        read_edge(line.substr(1));
      else
        read_layer(line);
    }
    connect();
    return std::move(layers_);
  }

 private:
  struct Edge {
    std::string from;
    std::string to;
    std::size_t line = 0;
  };

  void read_edge(std::string_view line) {
    const auto parts = split(line, " -- ");
    if (parts.size() != 2)
      throw ConfigError("{}: an edge should read 'node1 -- node2'", lines_.where());
    edges_.push_back({std::string(parts[0]), std::string(parts[1]), lines_.number()});
  }

  void read_layer(std::string_view line) {
    const auto parts = split(line, " -- ");
    if (parts.size() < 3)
      throw ConfigError("{}: a node should read 'node1 -- Conv2d(...) -- forward_compute_time=..., "
                        "backward_compute_time=..., activation_size=..., parameter_size=...'",
                        lines_.where());
    PipedreamLayer layer;
    layer.id = parts[0];
    layer.line = lines_.number();
    layer.number = number_in(parts[0]);
    const auto bracket = parts[1].find('(');
    layer.kind = parts[1].substr(0, bracket);
    if (bracket != std::string_view::npos) layer.arguments = parts[1].substr(bracket + 1);
    if (layer.arguments.ends_with(')')) layer.arguments.pop_back();
    read_costs(parts[2], layer);
    if (!known_.try_emplace(layer.id, layers_.size()).second)
      throw ConfigError("{}: {} comes a second time", lines_.where(), shown_text(layer.id));
    layers_.push_back(std::move(layer));
  }

  void read_costs(std::string_view text, PipedreamLayer& layer) const {
    std::map<std::string_view, std::string_view> costs;
    for (const std::string_view part : split(text, ", ")) {
      const auto equals = part.find('=');
      if (equals != std::string_view::npos)
        costs.emplace(part.substr(0, equals), part.substr(equals + 1));
    }
    const auto cost = [&](const char* key) {
      const auto found = costs.find(key);
      if (found == costs.end()) throw ConfigError("{}: {} is missing", lines_.where(), key);
      return found->second;
    };
    const auto time = [&](const char* key) {
      return Duration(std::llround(number(cost(key), key, kMostMilliseconds) * 1e6));
    };
    layer.forward = time("forward_compute_time");
    layer.backward = time("backward_compute_time");
    layer.parameters = bytes(cost("parameter_size"), "parameter_size");
    std::string_view sizes = cost("activation_size");
    if (sizes.size() > 2 && sizes.front() == '[' && sizes.back() == ']')
      sizes = sizes.substr(1, sizes.size() - 2);
    std::uint64_t all = 0;
    for (const std::string_view size : split(sizes, "; ")) {
      layer.outputs.push_back(bytes(size, "activation_size"));
      all += layer.outputs.back();
    }
    const bool runs = layer.forward > Duration{0} || layer.backward > Duration{0};
    if (runs && all == 0 && layer.kind.rfind("Input", 0) != 0)
      throw ConfigError("{}: {} takes time, but its activation_size is 0", lines_.where(),
                        shown_text(layer.id));
  }

  std::uint64_t bytes(std::string_view text, const char* key) const {
    return static_cast<std::uint64_t>(std::llround(number(text, key, TraceBuilder::kMostBytes)));
  }

  double number(std::string_view text, const char* key, double most) const {
    double value = 0.0;
    const char* const end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc() || stop != end || !(value >= 0.0 && value <= most))
      throw ConfigError("{}: {} is '{}' instead of a number from 0 to {}", lines_.where(), key,
                        shown_text(text), most);
    return value;
  }

  /// 12 for "node12": layers got their numbers in the order in which they ran.
  static std::uint64_t number_in(std::string_view id) {
    std::uint64_t value = 0;
    const auto digits = id.find_first_of("0123456789");
    if (digits != std::string_view::npos)
      std::from_chars(id.data() + digits, id.data() + id.size(), value);
    return value;
  }

  /// Sorts the layers by number, ties them by the edges and puts them into an order to run in.
  void connect() {
    std::stable_sort(
        layers_.begin(), layers_.end(),
        [](const PipedreamLayer& a, const PipedreamLayer& b) { return a.number < b.number; });
    for (std::size_t i = 0; i < layers_.size(); ++i) known_[layers_[i].id] = i;
    LayerGraph graph(layers_.size());
    for (const Edge& edge : edges_) {
      if (!graph.connect(layer_named(edge.from, edge), layer_named(edge.to, edge)))
        throw ConfigError("{}: the edge from {} to {} comes a second time", lines_.where(edge.line),
                          shown_text(edge.from), shown_text(edge.to));
    }
    const LayerGraph::Order order = graph.order();
    if (order.cyclic)
      throw ConfigError("{}: the graph is cyclic: {} depends on itself",
                        lines_.where(layers_[*order.cyclic].line),
                        shown_text(layers_[*order.cyclic].id));
    require_one_graph(graph);
    layers_ = graph.sorted(std::move(layers_), order);
  }

  /// Data that nobody reads does no harm; layers that nothing ties together are no model.
  void require_one_graph(const LayerGraph& graph) const {
    std::vector<bool> counts;
    for (const PipedreamLayer& layer : layers_) counts.push_back(layer.kind.rfind("Input", 0) != 0);
    const auto apart = graph.apart(counts);
    if (!apart) return;
    const auto first = std::find(counts.begin(), counts.end(), true) - counts.begin();
    throw ConfigError("{}: the graph is disconnected: no edges lead from {} to {} (add the edges "
                      "that are missing, or import each part alone)",
                      lines_.where(layers_[*apart].line),
                      shown_text(layers_[static_cast<std::size_t>(first)].id),
                      shown_text(layers_[*apart].id));
  }

  std::size_t layer_named(const std::string& id, const Edge& edge) const {
    const auto found = known_.find(id);
    if (found == known_.end())
      throw ConfigError("{}: there is no node called {}", lines_.where(edge.line), shown_text(id));
    return found->second;
  }

  TraceLines lines_;
  std::vector<PipedreamLayer> layers_;
  std::vector<Edge> edges_;
  std::unordered_map<std::string, std::size_t> known_;
};

}  // namespace

std::vector<PipedreamLayer> read_pipedream_graph(std::string_view text, const std::string& file) {
  return GraphReader(text, file).read();
}

}  // namespace spillway::profile
