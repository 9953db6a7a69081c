#include <algorithm>
#include <vector>

#include "spillway/base/error.h"
#include "workloads.h"

namespace spillway::quality {

using namespace partition;
using profile::OpIndex;
using profile::StepProfile;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

namespace {

constexpr std::string_view kBackward = " backward";
/// Weights, gradients and both states of Adam.
constexpr double kStaticRatio = 4.0;

class ChainReader {
 public:
  explicit ChainReader(const StepProfile& profile)
      : profile_(profile),
        readers_(profile.tape.values.size()),
        is_kept_(profile.tape.values.size(), 0),
        rewritten_seconds_(profile.tape.values.size(), 0.0) {}

  ModelChain read() {
    for (OpIndex op = 0; op < profile_.tape.ops.size(); ++op)
      is_backward(op) ? add_backward(op) : add_forward(op);
    for (ValueIndex value = 0; value < profile_.tape.values.size(); ++value) add_value(value);
    for (ModelLayer& layer : chain_.layers) {
      layer.working_peak += layer.stash;
      if (layer.stash == Bytes()) layer.recompute.clear();
    }
    check(chain_);
    return std::move(chain_);
  }

 private:
  const profile::OpKind& kind_of(OpIndex op) const {
    return profile_.kinds[profile_.kind_of_op[op]];
  }
  bool is_backward(OpIndex op) const { return kind_of(op).name.ends_with(kBackward); }
  bool is_born_forward(ValueIndex value) const {
    const OpIndex birth = profile_.tape.values[value].birth;
    return birth != profile::kCarriedIn && !is_backward(birth);
  }

  void add_forward(OpIndex op) {
    const auto index = static_cast<LayerIndex>(chain_.layers.size());
    ModelLayer layer;
    layer.name = message("{}({})", kind_of(op).name, kind_of(op).arguments);
    layer.forward_seconds = seconds(profile_.tape.ops[op].time);
    layer.backward_seconds = 0.0;
    layer.static_ratio = kStaticRatio;
    layer.recompute = {{layer.forward_seconds, Bytes()}};
    for (const TapeUse& use : uses_of(profile_.tape, op)) {
      const bool is_parameter = profile_.class_of_value[use.value] == StorageClass::kParameter;
      if (is_parameter && readers_[use.value].empty())
        layer.parameters += profile_.bytes_of_value[use.value];
      if (use.writes) rewritten_seconds_[use.value] += layer.forward_seconds;
      readers_[use.value].push_back(index);
    }
    chain_.layers.push_back(std::move(layer));
    layer_of_op_.push_back(index);
    turn_ = index + 1;
  }

  /// Backward operators come in the opposite order of their layers.
  void add_backward(OpIndex op) {
    const std::string name =
        message("{}({})", kind_of(op).name.substr(0, kind_of(op).name.size() - kBackward.size()),
                kind_of(op).arguments);
    LayerIndex found = turn_;
    while (found > 0 && chain_.layers[found - 1].name != name) --found;
    if (found > 0) turn_ = found - 1;
    ModelLayer& layer = chain_.layers[std::min<std::size_t>(turn_, chain_.layers.size() - 1)];
    layer.backward_seconds += seconds(profile_.tape.ops[op].time);
    layer_of_op_.push_back(turn_);
    Bytes peak = profile_.tape.ops[op].inside_peak_pages * profile_.page_size;
    for (const TapeUse& use : uses_of(profile_.tape, op)) {
      if (is_born_forward(use.value))
        is_kept_[use.value] = 1;
      else if (profile_.tape.values[use.value].birth != profile::kCarriedIn)
        peak += profile_.bytes_of_value[use.value];
    }
    // Gradients of parameters are static bytes, not transient ones.
    peak -= std::min(peak, born_to_stay(op));
    layer.working_peak = std::max(layer.working_peak, peak);
  }

  Bytes born_to_stay(OpIndex op) const {
    Bytes bytes;
    for (ValueIndex i = 0; i < profile_.tape.values.size(); ++i) {
      const TapeValue& value = profile_.tape.values[i];
      if (value.birth == op && value.death == profile::kSurvives)
        bytes += value.pages * profile_.page_size;
    }
    return bytes;
  }

  void add_value(ValueIndex index) {
    if (!is_born_forward(index)) return;
    const LayerIndex producer = layer_of_op_[profile_.tape.values[index].birth];
    const Bytes bytes = profile_.bytes_of_value[index];
    BorderTensor border{producer, {}, bytes};
    for (const LayerIndex reader : readers_[index])
      if (reader > producer) border.consumers.push_back(reader);
    if (!border.consumers.empty()) chain_.borders.push_back(std::move(border));
    if (is_kept_[index] == 0) return;
    ModelLayer& layer = chain_.layers[producer];
    layer.stash += bytes;
    layer.recompute.front().seconds += rewritten_seconds_[index];
  }

  const StepProfile& profile_;
  ModelChain chain_;
  std::vector<LayerIndex> layer_of_op_;
  std::vector<std::vector<LayerIndex>> readers_;  ///< By value: layers, in order.
  std::vector<char> is_kept_;                     ///< By value: backward reads it.
  std::vector<double> rewritten_seconds_;         ///< By value: of layers that write it in place.
  LayerIndex turn_ = 0;                           ///< Layers whose backward is yet to come.
};

}  // namespace

ModelChain imported_chain(const StepProfile& profile) { return ChainReader(profile).read(); }

}  // namespace spillway::quality
