#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layer_graph.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/trace_import.h"
#include "trace_builder.h"
#include "trace_lines.h"

namespace spillway::profile {
namespace {

constexpr double kMostMilliseconds = 1e12;
constexpr double kMostBytes = 1e18;
// Views of views of many outputs name far more of them than the file has bytes.
constexpr std::size_t kMostReads = 4'000'000;

// -------------------------------------------------------------------------------------- reading

struct Layer {
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

  std::vector<Layer> read() {
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
    Layer layer;
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

  void read_costs(std::string_view text, Layer& layer) const {
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
    return static_cast<std::uint64_t>(std::llround(number(text, key, kMostBytes)));
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
    std::stable_sort(layers_.begin(), layers_.end(),
                     [](const Layer& a, const Layer& b) { return a.number < b.number; });
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
    layers_ = graph.sorted(std::move(layers_), order);
  }

  std::size_t layer_named(const std::string& id, const Edge& edge) const {
    const auto found = known_.find(id);
    if (found == known_.end())
      throw ConfigError("{}: there is no node called {}", lines_.where(edge.line), shown_text(id));
    return found->second;
  }

  TraceLines lines_;
  std::vector<Layer> layers_;
  std::vector<Edge> edges_;
  std::unordered_map<std::string, std::size_t> known_;
};

// ------------------------------------------------------------------------------------ replaying

/// What a layer's backward operator reads of its forward one, and how its gradients come about.
struct LayerHabits {
  bool saves_inputs = true;
  bool saves_outputs = true;
  bool passes_gradient = false;  ///< Its inputs get the gradient of its output, or parts of it.
  bool is_view = false;          ///< Its output is its input; it does nothing.
};

constexpr LayerHabits kSavesInputs{true, false, false, false};
constexpr LayerHabits kSavesOutputs{false, true, false, false};
constexpr LayerHabits kSavesNothing{false, false, false, false};
constexpr LayerHabits kPasses{false, false, true, false};
constexpr LayerHabits kView{false, false, true, true};

constexpr std::array<Named<LayerHabits>, 27> kHabits{{{"Conv1d", kSavesInputs},
                                                      {"Conv2d", kSavesInputs},
                                                      {"Conv3d", kSavesInputs},
                                                      {"ConvTranspose2d", kSavesInputs},
                                                      {"ConvTranspose3d", kSavesInputs},
                                                      {"Linear", kSavesInputs},
                                                      {"BatchNorm1d", kSavesInputs},
                                                      {"BatchNorm2d", kSavesInputs},
                                                      {"BatchNorm3d", kSavesInputs},
                                                      {"LayerNorm", kSavesInputs},
                                                      {"Embedding", kSavesNothing},
                                                      {"AvgPool2d", kSavesNothing},
                                                      {"AdaptiveAvgPool2d", kSavesNothing},
                                                      {"ReLU", kSavesOutputs},
                                                      {"ReLU6", kSavesOutputs},
                                                      {"Sigmoid", kSavesOutputs},
                                                      {"Tanh", kSavesOutputs},
                                                      {"Softmax", kSavesOutputs},
                                                      {"LogSoftmax", kSavesOutputs},
                                                      {"Dropout", kSavesOutputs},
                                                      {"Add", kPasses},
                                                      {"Concat", kPasses},
                                                      {"View", kView},
                                                      {"Size", kView},
                                                      {"__getitem__", kView},
                                                      {"hidden", kView},
                                                      {"Flatten", kView}}};

LayerHabits habits_of(const std::string& kind) {
  for (const auto& known : kHabits)
    if (known.name == kind) return known.value;
  return {};
}

/// Runs all layers forward and then backward, in opposite order.
class LayerReplay {
 public:
  explicit LayerReplay(std::vector<Layer> layers) : layers_(std::move(layers)) {
    ports_of_.resize(layers_.size());
    inputs_of_.resize(layers_.size());
    parameters_.resize(layers_.size(), kNone);
  }

  StepProfile replay(ProfileOrigin origin) {
    for (std::size_t i = 0; i < layers_.size(); ++i) find_ports(i);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i].parameters > 0 && runs(i))
        parameters_[i] = builder_.carried_in(layers_[i].parameters, StorageClass::kParameter);
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (runs(i)) forward(i);
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      if (runs(i)) backward(i);
    }
    return builder_.finish(std::move(origin));
  }

  bool has_layers() const {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (runs(i)) return true;
    return false;
  }

 private:
  using Value = TraceBuilder::Value;
  static constexpr Value kNone = TraceBuilder::kNone;
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  /// One output of a layer, and later its gradient.
  struct Port {
    std::uint64_t bytes = 0;
    std::uint32_t readers = 0;
    Value value = kNone;
    Value gradient = kNone;
    std::size_t last_reader = kNobody;
  };

  bool is_input(std::size_t layer) const { return layers_[layer].kind.rfind("Input", 0) == 0; }
  bool runs(std::size_t layer) const {
    return !is_input(layer) && !habits_of(layers_[layer].kind).is_view;
  }

  void find_ports(std::size_t index) {
    const Layer& layer = layers_[index];
    for (const std::size_t input : layer.inputs) {
      reads_ += ports_of_[input].size();
      if (reads_ > kMostReads)
        throw PlanError(
            "the layers up to {} read more than {} outputs, each counted once for every "
            "view on the way and every reader",
            shown_text(layer.id), kMostReads);
      for (const std::size_t port : ports_of_[input]) {
        if (std::exchange(ports_[port].last_reader, index) != index)
          inputs_of_[index].push_back(port);
      }
    }
    if (is_input(index) || layer.kind == "Size") return;
    if (!runs(index)) {
      ports_of_[index] = viewed_ports(index);
      return;
    }
    for (const std::size_t port : inputs_of_[index]) ++ports_[port].readers;
    for (const std::uint64_t bytes : layer.outputs) {
      ports_of_[index].push_back(ports_.size());
      ports_.emplace_back().bytes = bytes;
    }
  }

  /// "__getitem__(1)" is the second output of its input, every other view is all of it.
  std::vector<std::size_t> viewed_ports(std::size_t index) const {
    const std::vector<std::size_t>& inputs = inputs_of_[index];
    const std::string& text = layers_[index].arguments;
    std::size_t element = 0;
    if (layers_[index].kind != "__getitem__" || inputs.size() < 2 || text.empty()) return inputs;
    std::from_chars(text.data(), text.data() + text.size(), element);
    return element < inputs.size() ? std::vector{inputs[element]} : inputs;
  }

  void forward(std::size_t index) {
    const Layer& layer = layers_[index];
    builder_.begin_op(layer.kind, layer.arguments, layer.forward);
    for (const std::size_t port : inputs_of_[index]) builder_.use_if_any(ports_[port].value);
    builder_.use_if_any(parameters_[index]);
    const std::size_t target = place_to_write(index);
    for (const std::size_t port : ports_of_[index]) {
      if (target < ports_.size()) {
        ports_[port].value = ports_[target].value;
        builder_.use(ports_[port].value, true);
      } else {
        ports_[port].value = builder_.temporary(ports_[port].bytes);
      }
    }
  }

  /// The input that a layer which works in place writes to: of its own size, and nobody else's.
  std::size_t place_to_write(std::size_t index) const {
    const Layer& layer = layers_[index];
    if (layer.arguments.find("inplace") == std::string::npos || ports_of_[index].size() != 1)
      return ports_.size();
    std::size_t found = ports_.size();
    for (const std::size_t port : inputs_of_[index]) {
      const bool fits = ports_[port].bytes == layer.outputs.front() && ports_[port].readers == 1;
      if (fits && (found == ports_.size() || port > found)) found = port;
    }
    return found;
  }

  void backward(std::size_t index) {
    const Layer& layer = layers_[index];
    LayerHabits habits = habits_of(layer.kind);
    builder_.begin_op(layer.kind + " backward", layer.arguments, layer.backward);
    bool has_gradient = false;
    for (const std::size_t port : ports_of_[index]) {
      builder_.use_if_any(ports_[port].gradient);
      has_gradient = has_gradient || ports_[port].gradient != kNone;
    }
    // Nobody reads the last layer but the loss, whose part this operator plays.
    habits.saves_outputs = habits.saves_outputs || !has_gradient;
    habits.passes_gradient = habits.passes_gradient && has_gradient;
    if (habits.saves_outputs)
      for (const std::size_t port : ports_of_[index]) builder_.use_if_any(ports_[port].value);
    if (habits.saves_inputs)
      for (const std::size_t port : inputs_of_[index]) builder_.use_if_any(ports_[port].value);
    builder_.use_if_any(parameters_[index]);
    for (const std::size_t port : inputs_of_[index]) {
      if (habits.passes_gradient)
        pass_gradient(ports_[port], ports_[ports_of_[index].front()].gradient);
      else
        make_gradient(ports_[port]);
    }
    if (layer.parameters > 0) builder_.born(layer.parameters, StorageClass::kGradient);
    for (const std::size_t port : ports_of_[index]) drop_gradient(ports_[port]);
  }

  /// A gradient of the port's size; where another reader has left one, it is added to that.
  void make_gradient(Port& port) {
    if (port.gradient == kNone) {
      hold_gradient(port, builder_.temporary(port.bytes));
      return;
    }
    builder_.needs_inside(port.bytes);
    add_to_gradient(port);
  }

  void pass_gradient(Port& port, Value gradient) {
    if (port.gradient == kNone)
      hold_gradient(port, gradient);
    else
      add_to_gradient(port);
  }

  /// In place where nobody else holds it or a part of it.
  void add_to_gradient(Port& port) {
    const bool is_own = holders_[port.gradient] == 1 && builder_.bytes(port.gradient) == port.bytes;
    builder_.use(port.gradient, is_own);
    if (is_own) return;
    drop_gradient(port);
    hold_gradient(port, builder_.temporary(port.bytes));
  }

  void hold_gradient(Port& port, Value gradient) {
    port.gradient = gradient;
    ++holders_[gradient];
  }

  void drop_gradient(Port& port) {
    if (port.gradient != kNone) --holders_[std::exchange(port.gradient, kNone)];
  }

  std::vector<Layer> layers_;
  std::vector<Port> ports_;
  std::vector<std::vector<std::size_t>> ports_of_;    ///< Outputs per layer.
  std::vector<std::vector<std::size_t>> inputs_of_;   ///< Ports that a layer reads.
  std::size_t reads_ = 0;                             ///< Ports behind all edges so far.
  std::vector<Value> parameters_;                     ///< Per layer.
  std::unordered_map<Value, std::uint32_t> holders_;  ///< Ports per gradient.
  TraceBuilder builder_;
};

}  // namespace

StepProfile import_pipedream(std::string_view text, const std::string& name) {
  return named(name, [&] {
    LayerReplay replay(GraphReader(text, name).read());
    if (!replay.has_layers()) throw ConfigError("{}: the graph holds no layer that runs", name);
    ProfileOrigin origin;
    origin.source = "pipedream";
    origin.program = name;
    origin.steps = 1;
    return replay.replay(std::move(origin));
  });
}

}  // namespace spillway::profile
