#include <array>
#include <charconv>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pipedream_graph.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/import/trace_import.h"
#include "trace_builder.h"

namespace spillway::profile {
namespace {

// Views of views of many outputs name far more of them than the file has bytes.
constexpr std::size_t kMostReads = 4'000'000;

/// What a layer's backward operator reads of its forward one, and how its gradients come about.
struct LayerTraits {
  bool saves_inputs = true;
  bool saves_outputs = true;
  bool passes_gradient = false;  ///< Its inputs get the gradient of its output, or parts of it.
  bool is_view = false;          ///< Its output is its input; it does nothing.
};

constexpr LayerTraits kSavesInputs{true, false, false, false};
constexpr LayerTraits kSavesOutputs{false, true, false, false};
constexpr LayerTraits kSavesNothing{false, false, false, false};
constexpr LayerTraits kPasses{false, false, true, false};
constexpr LayerTraits kView{false, false, true, true};

constexpr std::array<Named<LayerTraits>, 27> kTraits{{{"Conv1d", kSavesInputs},
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

LayerTraits traits_of(const std::string& kind) {
  for (const auto& known : kTraits)
    if (known.name == kind) return known.value;
  return {};
}

/// Runs all layers forward and then backward, in opposite order.
class LayerReplay {
 public:
  explicit LayerReplay(std::vector<PipedreamLayer> layers) : layers_(std::move(layers)) {
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
    return !is_input(layer) && !traits_of(layers_[layer].kind).is_view;
  }

  void find_ports(std::size_t index) {
    const PipedreamLayer& layer = layers_[index];
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
    const PipedreamLayer& layer = layers_[index];
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
    const PipedreamLayer& layer = layers_[index];
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
    const PipedreamLayer& layer = layers_[index];
    LayerTraits traits = traits_of(layer.kind);
    builder_.begin_op(layer.kind + " backward", layer.arguments, layer.backward);
    bool has_gradient = false;
    for (const std::size_t port : ports_of_[index]) {
      builder_.use_if_any(ports_[port].gradient);
      has_gradient = has_gradient || ports_[port].gradient != kNone;
    }
    // Nobody reads the last layer but the loss, whose part this operator plays.
    traits.saves_outputs = traits.saves_outputs || !has_gradient;
    traits.passes_gradient = traits.passes_gradient && has_gradient;
    if (traits.saves_outputs)
      for (const std::size_t port : ports_of_[index]) builder_.use_if_any(ports_[port].value);
    if (traits.saves_inputs)
      for (const std::size_t port : inputs_of_[index]) builder_.use_if_any(ports_[port].value);
    builder_.use_if_any(parameters_[index]);
    for (const std::size_t port : inputs_of_[index]) {
      if (traits.passes_gradient)
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

  std::vector<PipedreamLayer> layers_;
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
    LayerReplay replay(read_pipedream_graph(text, name));
    if (!replay.has_layers()) throw ConfigError("{}: the graph holds no layer that runs", name);
    ProfileOrigin origin;
    origin.source = "pipedream";
    origin.program = name;
    origin.steps = 1;
    return replay.replay(std::move(origin));
  });
}

}  // namespace spillway::profile
