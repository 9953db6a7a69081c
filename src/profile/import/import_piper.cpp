#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "layer_graph.h"
#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/import/trace_import.h"
#include "trace_builder.h"

namespace spillway::profile {
namespace {

constexpr double kMostSeconds = 1e9;
constexpr std::uint64_t kMostMicroBatches = 1'000'000;
constexpr std::uint64_t kMostId = std::uint64_t{1} << 53;

/// What one way of running a layer costs.
struct LayerCosts {
  double seconds = 0.0;          ///< Forward and backward.
  double parameters = 0.0;       ///< Bytes.
  double per_micro_batch = 0.0;  ///< Bytes that are kept for backward.
  double fixed = 0.0;            ///< Bytes that are always there: parameters and their gradients.
};

struct Layer {
  std::string name;
  LayerCosts plain;
  std::optional<LayerCosts> recomputed;  ///< Keeps its inputs only.
  double sent = 0.0;                     ///< Bytes of its output, by the edges.
  std::vector<std::size_t> inputs;

  /// Data that comes from outside of the network.
  bool is_input() const {
    return inputs.empty() && plain.seconds == 0.0 && plain.parameters == 0.0;
  }
};

class PiperReader {
 public:
  PiperReader(const JsonText& text, std::uint32_t degree)
      : root_(text.root()), degree_(std::to_string(degree)) {}

  std::vector<Layer> read() {
    for (JsonObject& node : root_.objects("nodes")) read_layer(node);
    LayerGraph graph(layers_.size());
    for (JsonObject& edge : root_.objects("edges")) read_edge(edge, graph);
    const LayerGraph::Order order = graph.order();
    if (order.cyclic)
      throw ConfigError("{}: the graph is cyclic: the node {} ({}) depends on itself",
                        root_.place("edges"), ids_[*order.cyclic],
                        shown_text(layers_[*order.cyclic].name));
    require_one_graph(graph);
    return graph.sorted(std::move(layers_), order);
  }

 private:
  /// Data that nobody reads does no harm; layers that nothing ties together are no model.
  void require_one_graph(const LayerGraph& graph) const {
    std::vector<bool> counts;
    for (const Layer& layer : layers_)
      counts.push_back(layer.plain.seconds > 0.0 || layer.plain.parameters > 0.0);
    if (const auto apart = graph.apart(counts))
      throw ConfigError("{}: the graph is disconnected: no edges tie the node {} ({}) to the first "
                        "layer (add the edges that are missing, or import each part alone)",
                        root_.place("edges"), ids_[*apart], shown_text(layers_[*apart].name));
  }

  void read_layer(JsonObject& node) {
    Layer layer;
    const std::uint64_t id = node.count("id", 0, kMostId);
    layer.name = node.has("name") ? node.text("name") : "layer";
    JsonObject degrees = node.object("TMPCs");
    if (!degrees.has(degree_))
      throw ConfigError("{} has no tensor-parallel degree {} (known: {})", node.place("TMPCs"),
                        degree_, degrees.key_list());
    bool is_plain_known = false;
    for (JsonObject& option : degrees.objects(degree_)) {
      const bool recomputes = option.text("id").find("recomp") != std::string::npos;
      if (recomputes)
        layer.recomputed = costs_in(option);
      else
        layer.plain = costs_in(option);
      is_plain_known = is_plain_known || !recomputes;
    }
    if (!is_plain_known)
      throw ConfigError("{} has no costs without recomputation", degrees.place(degree_));
    if (layer.plain.seconds > 0.0 && layer.plain.per_micro_batch == 0.0)
      throw ConfigError("{}: the layer takes time, but its memoryUsageA is 0",
                        degrees.place(degree_));
    if (!known_.try_emplace(id, layers_.size()).second)
      throw ConfigError("{} is {} for a second time", node.place("id"), id);
    ids_.push_back(id);
    layers_.push_back(std::move(layer));
  }

  static LayerCosts costs_in(JsonObject& option) {
    LayerCosts costs;
    costs.seconds = option.number("timePerSample", 0.0, kMostSeconds);
    costs.parameters = option.number("parameterSize", 0.0, TraceBuilder::kMostBytes);
    costs.per_micro_batch = option.number("memoryUsageA", 0.0, TraceBuilder::kMostBytes);
    costs.fixed = option.number("memoryUsageB", 0.0, TraceBuilder::kMostBytes);
    return costs;
  }

  void read_edge(JsonObject& edge, LayerGraph& graph) {
    const std::size_t from = end_of(edge, "sourceId");
    const std::size_t to = end_of(edge, "destId");
    if (!graph.connect(from, to))
      throw ConfigError("{} names an edge that came before", edge.place("destId"));
    double& sent = layers_[from].sent;
    sent = std::max(sent, edge.number("communicationCost", 0.0, TraceBuilder::kMostBytes));
  }

  std::size_t end_of(JsonObject& edge, const char* key) const {
    const std::uint64_t id = edge.count(key, 0, kMostId);
    const auto found = known_.find(id);
    if (found == known_.end()) throw ConfigError("{}: there is no node {}", edge.place(key), id);
    return found->second;
  }

  JsonObject root_;
  std::string degree_;
  std::vector<Layer> layers_;
  std::vector<std::uint64_t> ids_;
  std::map<std::uint64_t, std::size_t> known_;
};

/// Runs all layers forward and then backward, in opposite order.
class ChainReplay {
 public:
  ChainReplay(std::vector<Layer> layers, std::uint32_t micro_batches)
      : layers_(std::move(layers)), micro_batches_(micro_batches), states_(layers_.size()) {
    find_outputs();
  }

  StepProfile replay(ProfileOrigin origin) {
    for (std::size_t i = 0; i < layers_.size(); ++i) carry_in(i);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!layers_[i].is_input()) forward(i);
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      if (!layers_[i].is_input()) backward(i);
    }
    return builder_.finish(std::move(origin));
  }

  bool has_layers() const {
    return std::any_of(layers_.begin(), layers_.end(),
                       [](const Layer& layer) { return !layer.is_input(); });
  }

 private:
  using Value = TraceBuilder::Value;
  static constexpr Value kNone = TraceBuilder::kNone;

  struct State {
    Value parameters = kNone;
    Value parameter_gradients = kNone;
    Value output = kNone;
    Value kept = kNone;  ///< Inside of the layer, for backward.
    Value gradient = kNone;
  };

  static std::uint64_t whole(double bytes) {
    return static_cast<std::uint64_t>(std::llround(std::max(0.0, bytes)));
  }
  std::uint64_t scaled(double bytes) const { return whole(bytes * micro_batches_); }

  void carry_in(std::size_t index) {
    const Layer& layer = layers_[index];
    State& state = states_[index];
    if (layer.is_input()) {
      state.output = builder_.carried_in(scaled(layer.plain.per_micro_batch), StorageClass::kInput);
      return;
    }
    if (layer.plain.parameters == 0.0) return;
    state.parameters = builder_.carried_in(whole(layer.plain.parameters), StorageClass::kParameter);
    const double rest = layer.plain.fixed - layer.plain.parameters;
    if (rest > 0.0)
      state.parameter_gradients = builder_.carried_in(whole(rest), StorageClass::kGradient);
  }

  /// What a layer gets from the layers before it: where costs with recomputation are there, what
  /// it keeps then.
  double received(const Layer& layer) const {
    if (layer.recomputed) return layer.recomputed->per_micro_batch;
    double sum = 0.0;
    for (const std::size_t input : layer.inputs) sum += outputs_[input];
    return sum;
  }

  /// Bytes per micro-batch that a layer hands on. The first reader that says what it keeps, and
  /// gets nothing else but data from outside, knows better than the edges.
  void find_outputs() {
    for (const Layer& layer : layers_)
      outputs_.push_back(layer.is_input() ? layer.plain.per_micro_batch : layer.sent);
    std::vector<bool> has_reader(layers_.size());
    for (const Layer& reader : layers_) {
      double data = 0.0;
      std::size_t layers = 0;
      for (const std::size_t input : reader.inputs) {
        const Layer& feeding = layers_[input];
        if (feeding.is_input())
          data += feeding.plain.per_micro_batch;
        else
          ++layers;
      }
      for (const std::size_t input : reader.inputs) {
        if (layers_[input].is_input() || has_reader[input]) continue;
        has_reader[input] = true;
        const double rest = reader.recomputed ? reader.recomputed->per_micro_batch - data : 0.0;
        if (layers == 1 && rest > 0.0) outputs_[input] = rest;
      }
    }
  }

  /// Recomputing runs forward once more: the difference is its time. Without it, a third.
  static double forward_seconds(const Layer& layer) {
    const double all = layer.plain.seconds;
    const double more = layer.recomputed ? layer.recomputed->seconds - all : 0.0;
    return more > 0.0 && more < all ? more : all / 3.0;
  }

  Duration time(double seconds) const {
    return Duration(std::llround(std::min(seconds * micro_batches_, kMostSeconds) * 1e9));
  }

  void forward(std::size_t index) {
    const Layer& layer = layers_[index];
    State& state = states_[index];
    builder_.begin_op(layer.name, "", time(forward_seconds(layer)));
    for (const std::size_t input : layer.inputs) builder_.use_if_any(states_[input].output);
    builder_.use_if_any(state.parameters);
    state.output = builder_.temporary(scaled(outputs_[index]));
    state.kept = builder_.temporary(scaled(layer.plain.per_micro_batch - received(layer)));
  }

  void backward(std::size_t index) {
    const Layer& layer = layers_[index];
    State& state = states_[index];
    builder_.begin_op(layer.name + " backward", "",
                      time(layer.plain.seconds - forward_seconds(layer)));
    // The last layer has no gradient yet: the loss is made of its output.
    builder_.use_if_any(state.gradient != kNone ? state.gradient : state.output);
    builder_.use_if_any(state.kept);
    builder_.use_if_any(state.parameters);
    for (const std::size_t input : layer.inputs) {
      builder_.use_if_any(states_[input].output);
      if (layers_[input].is_input()) continue;
      if (states_[input].gradient == kNone) {
        states_[input].gradient = builder_.temporary(scaled(outputs_[input]));
      } else {
        builder_.use(states_[input].gradient, true);
        builder_.needs_inside(scaled(outputs_[input]));
      }
    }
    if (state.parameter_gradients == kNone) return;
    // As trainers do it. Else all that backward reads would seem to wait for an optimizer.
    builder_.begin_op(layer.name + " accumulate", "", Duration(0));
    builder_.use(state.parameter_gradients, true);
  }

  std::vector<Layer> layers_;
  std::uint32_t micro_batches_;
  std::vector<State> states_;
  std::vector<double> outputs_;  ///< Per layer, see `find_outputs`.
  TraceBuilder builder_;
};

}  // namespace

StepProfile import_piper(std::string_view text, const std::string& name,
                         const PiperOptions& options) {
  if (options.micro_batches == 0 || options.micro_batches > kMostMicroBatches)
    throw ConfigError("{}: {} micro-batches are not from 1 to {}", name, options.micro_batches,
                      kMostMicroBatches);
  constexpr int kDepth = 8;  // Root, nodes, node, degrees, options, option, their times.
  const JsonText json(text, name, kDepth);
  return named(name, [&] {
    ChainReplay replay(PiperReader(json, options.tensor_parallel).read(), options.micro_batches);
    if (!replay.has_layers()) throw ConfigError("{}: there is no layer that runs", name);
    ProfileOrigin origin;
    origin.source = "piper";
    origin.program = name;
    origin.steps = 1;
    return replay.replay(std::move(origin));
  });
}

}  // namespace spillway::profile
