#include "spillway/planner/job/measured_model.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "layer_facts.h"
#include "spillway/base/error.h"
#include "spillway/profile/autograd_links.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::job {

using profile::OpIndex;
using profile::StepProfile;
using profile::StorageClass;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

namespace {

/// "aten::nll_loss2d" of "aten::nll_loss2d_forward" and "aten::add" of "aten::add.Tensor".
std::string_view stem_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  constexpr std::string_view kForward = "_forward";
  if (name.ends_with(kForward)) name.remove_suffix(kForward.size());
  return name;
}

class ModelReader {
 public:
  explicit ModelReader(const StepProfile& profile)
      : profile_(profile), tape_(profile.tape), forward_users_(tape_.values.size()) {}

  MeasuredModel read() {
    if (tape_.ops.empty()) throw ConfigError("the profile has no operators; record a step of it");
    roles_ = operator_roles(profile_);
    forward_end_ = roles_.stash.forward_end;
    model_.guesses_forward = roles_.is_guessed;
    make_layers();
    is_kept_.assign(tape_.values.size(), 0);
    for (const planner::StashedValue& value : roles_.stash.values) is_kept_[value.value] = 1;
    keep_data();
    add_parameters();
    add_stashes();
    add_borders();
    add_backward();
    freeze_prefix();
    add_small_parameters();
    add_recomputation();
    add_update_peaks();
    model_.chain.dependences = layer_dependences(profile_, layer_of_op_);
    model_.chain.may_reorder = profile_.hidden_dependences.has_value();
    name_step();
    model_.reserved =
        profile_.small_bytes - std::min(profile_.small_bytes, profile_.small_parameter_bytes);
    return std::move(model_);
  }

 private:
  StorageClass holds(ValueIndex value) const { return profile_.class_of_value[value]; }
  /// What a message of it carries.
  Bytes bytes(ValueIndex value) const { return profile_.bytes_of_value[value]; }
  /// What it takes in memory: whole pages.
  Bytes held(ValueIndex value) const { return tape_.values[value].pages * profile_.page_size; }
  std::string_view name_of(OpIndex op) const {
    return profile_.kinds[profile_.kind_of_op[op]].name;
  }

  /// By operator: whether it reads, writes or makes a value. Others are recorded for what they take
  /// inside, which ranks that let them pass do not see.
  std::vector<char> have_values() const {
    std::vector<char> found;
    for (const profile::TapeOp& op : tape_.ops) found.push_back(op.use_count > 0 ? 1 : 0);
    for (const profile::TapeValue& value : tape_.values)
      if (value.birth != profile::kCarriedIn && !value.is_shared) found[value.birth] = 1;
    return found;
  }

  void make_layers() {
    const std::vector<char> has_values = have_values();
    std::vector<partition::ModelLayer>& layers = model_.chain.layers;
    double before = 0.0;  // Seconds of those that come before all layers.
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      layer_of_op_.push_back(kNoLayer);
      if (roles_.is(op, Role::kUpdate)) model_.update_seconds += seconds(tape_.ops[op].time);
      if (!roles_.is(op, Role::kForward)) continue;
      // Such an operator is no place for a cut: nothing would pass it. Its time goes to the layer
      // before.
      if (has_values[op] == 0) {
        layer_of_op_[op] = ops_.empty() ? 0 : layer_of_op_[ops_.back()];
        (ops_.empty() ? before : layers.back().forward_seconds) += seconds(tape_.ops[op].time);
        continue;
      }
      layer_of_op_[op] = static_cast<partition::LayerIndex>(layers.size());
      ops_.push_back(op);
      partition::ModelLayer layer;
      layer.name = message("{} #{}", name_of(op), op);
      layer.forward_seconds = std::exchange(before, 0.0) + seconds(tape_.ops[op].time);
      layer.backward_seconds = 0.0;
      layers.push_back(std::move(layer));
      for (const TapeUse& use : profile::uses_of(tape_, op))
        forward_users_[use.value].push_back(layer_of_op_[op]);
    }
    if (layers.empty())
      throw ConfigError("the profile has no forward operators; record a whole training step");
  }

  /// Which operators of the step the layers are, for who executes a plan of them.
  void name_step() {
    schedule::ProfiledStep& step = model_.chain.step.emplace();
    step.operators = static_cast<std::uint32_t>(tape_.ops.size());
    step.operator_hash = profile::OpSequence(tape_.ops).identity();
    // Behind the last layer there is no forward to be executed.
    step.layer_of_operator.assign(layer_of_op_.begin(), layer_of_op_.begin() + ops_.back() + 1);
  }

  /// Data of the step that backward looks at again waits like what forward makes.
  void keep_data() {
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      if (!roles_.is(op, Role::kBackward)) continue;
      for (const TapeUse& use : profile::uses_of(tape_, op))
        if (holds(use.value) == StorageClass::kInput && !forward_users_[use.value].empty())
          is_kept_[use.value] = 1;
    }
  }

  /// Gradients and states that are there beside the weights, per byte of these.
  double static_ratio() const {
    std::vector<char> is_updated(tape_.values.size(), 0);
    for (OpIndex op = 0; op < tape_.ops.size(); ++op)
      if (roles_.is(op, Role::kUpdate))
        for (const TapeUse& use : profile::uses_of(tape_, op)) is_updated[use.value] = 1;
    double weights = 0.0;
    double others = 0.0;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const bool survives = tape_.values[i].death == profile::kSurvives;
      const auto size = static_cast<double>(bytes(i).count());
      if (holds(i) == StorageClass::kParameter && survives) weights += size;
      if (holds(i) == StorageClass::kOptimizerState && survives) others += size;
      // One that was carried in and dies comes again in this step, and is counted then.
      const bool is_here = tape_.values[i].birth != profile::kCarriedIn || survives;
      if (holds(i) == StorageClass::kGradient && is_here && (survives || is_updated[i] != 0))
        others += size;
    }
    return weights > 0.0 ? (weights + others) / weights : 1.0;
  }

  void add_parameters() {
    const double ratio = static_ratio();
    for (partition::ModelLayer& layer : model_.chain.layers) layer.static_ratio = ratio;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      std::vector<partition::LayerIndex>& users = forward_users_[i];
      if (holds(i) != StorageClass::kParameter || users.empty()) continue;
      for (const partition::LayerIndex user : users)
        model_.chain.layers[user].parameters += bytes(i);
      // Each layer counts it as its own; the tie takes it back where they share a stage.
      if (users.size() > 1) model_.chain.ties.push_back({users, bytes(i)});
      // Gradient and states have pages like the parameter's.
      const auto spare = static_cast<double>((held(i) - bytes(i)).count());
      model_.chain.layers[users.front()].buffers +=
          Bytes(static_cast<std::uint64_t>(spare * ratio));
    }
    for (ValueIndex i = 0; i < tape_.values.size(); ++i)
      if (holds(i) == StorageClass::kBuffer && !forward_users_[i].empty())
        model_.chain.layers[forward_users_[i].front()].buffers += held(i);
  }

  void add_stashes() {
    data_of_.resize(model_.chain.layers.size());
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (is_kept_[i] == 0) continue;
      const OpIndex birth = tape_.values[i].birth;
      partition::LayerIndex owner = kNoLayer;
      if (birth != profile::kCarriedIn) owner = layer_of_op_[birth];
      // No operator of forward has made it: it waits from the first layer on that reads it.
      if (owner == kNoLayer && !forward_users_[i].empty()) owner = forward_users_[i].front();
      if (owner == kNoLayer) continue;
      model_.chain.layers[owner].stash += held(i);
      // No operator brings it back, so it stays even where the layer is recomputed.
      if (birth == profile::kCarriedIn) data_of_[owner] += held(i);
    }
  }

  void add_borders() {
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const OpIndex birth = tape_.values[i].birth;
      if (birth == profile::kCarriedIn || layer_of_op_[birth] == kNoLayer) continue;
      const partition::LayerIndex producer = layer_of_op_[birth];
      partition::BorderTensor border{producer, {}, bytes(i)};
      for (const partition::LayerIndex user : forward_users_[i])
        if (user > producer) border.consumers.push_back(user);
      // What only its own layer reads never crosses a cut.
      if (!border.consumers.empty()) model_.chain.borders.push_back(std::move(border));
    }
  }

  /// The layer that a backward operator belongs to, or none.
  partition::LayerIndex owner_of(OpIndex op) const {
    const partition::LayerIndex known = known_owner_of(op);
    return known != kNoLayer ? known : guessed_owner_of(op);
  }

  /// As autograd knew it: in double backward and checkpointing by way of other backward operators.
  partition::LayerIndex known_owner_of(OpIndex op) const {
    if (profile_.forward_of_op.empty()) return kNoLayer;
    for (op = profile_.forward_of_op[op]; op != profile::kNoForward;
         op = profile_.forward_of_op[op])
      if (layer_of_op_[op] != kNoLayer) return layer_of_op_[op];
    return kNoLayer;
  }

  partition::LayerIndex guessed_owner_of(OpIndex op) const {
    partition::LayerIndex by_parameter = kNoLayer;
    partition::LayerIndex by_name = kNoLayer;
    partition::LayerIndex by_birth = kNoLayer;
    // A backward reads what its layer got from those before, so the last of them is its own.
    const auto raise = [](partition::LayerIndex& found, partition::LayerIndex layer) {
      if (layer != kNoLayer && (found == kNoLayer || layer > found)) found = layer;
    };
    const auto look_at = [&](partition::LayerIndex layer) {
      if (layer == kNoLayer) return;
      const std::string_view stem = stem_of(name_of(ops_[layer]));
      if (name_of(op).substr(0, stem.size()) == stem) raise(by_name, layer);
    };
    for (const TapeUse& use : profile::uses_of(tape_, op)) {
      const std::vector<partition::LayerIndex>& users = forward_users_[use.value];
      if (holds(use.value) == StorageClass::kParameter && !users.empty())
        raise(by_parameter, users.back());
      if (is_kept_[use.value] == 0) continue;
      const OpIndex birth = tape_.values[use.value].birth;
      const partition::LayerIndex producer =
          birth == profile::kCarriedIn ? kNoLayer : layer_of_op_[birth];
      look_at(producer);
      for (const partition::LayerIndex user : users) look_at(user);
      raise(by_birth, producer);
    }
    // From the surest sign to the weakest.
    for (const partition::LayerIndex found : {by_parameter, by_name, by_birth})
      if (found != kNoLayer) return found;
    return kNoLayer;
  }

  void add_working_peak(partition::LayerIndex layer, OpIndex op) {
    Bytes peak = tape_.ops[op].inside_peak_pages * profile_.page_size;
    for (const TapeUse& use : profile::uses_of(tape_, op))
      // What waits for backward counts as stash, and what was carried in as parameters or data.
      if (is_kept_[use.value] == 0 && tape_.values[use.value].birth != profile::kCarriedIn)
        peak += held(use.value);
    Bytes& most = model_.chain.layers[layer].working_peak;
    most = std::max(most, peak);
  }

  void add_backward() {
    for (OpIndex op = 0; op < tape_.ops.size(); ++op)
      if (layer_of_op_[op] != kNoLayer) add_working_peak(layer_of_op_[op], op);
    auto owner = static_cast<partition::LayerIndex>(model_.chain.layers.size() - 1);
    bool has_backward = false;
    for (OpIndex op = forward_end_ + 1; op < tape_.ops.size(); ++op) {
      if (!roles_.is(op, Role::kBackward)) continue;
      const partition::LayerIndex found = owner_of(op);
      // Backward goes from the end to the begin, so what nobody owns belongs where the one before
      // did.
      if (found != kNoLayer) owner = found;
      model_.chain.layers[owner].backward_seconds += seconds(tape_.ops[op].time);
      add_working_peak(owner, op);
      has_backward = true;
    }
    if (!has_backward)
      throw ConfigError("the profile has no backward operators; record a training step");
  }

  void freeze_prefix() {
    const partition::LayerIndex end = frozen_prefix(profile_, layer_of_op_, forward_end_);
    for (partition::LayerIndex i = 0; i < end; ++i) {
      partition::ModelLayer& layer = model_.chain.layers[i];
      // With a backward or a stash it does not lead frozen, and nor does any layer behind it.
      if (layer.backward_seconds > 0.0 || layer.stash > Bytes(0)) return;
      layer.is_frozen = true;
    }
  }

  /// Nobody knows which layers use those that are too small for the tape: all trained ones alike.
  void add_small_parameters() {
    std::vector<partition::ModelLayer*> trained;
    for (partition::ModelLayer& layer : model_.chain.layers)
      if (!layer.is_frozen) trained.push_back(&layer);
    std::uint64_t left = profile_.small_parameter_bytes.count();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      // Of what is left, so that all shares add up to the byte.
      const std::uint64_t share = left / (trained.size() - i);
      trained[i]->parameters += Bytes(share);
      left -= share;
    }
  }

  void add_recomputation() {
    const RecomputeClosure closure(tape_, is_kept_, forward_end_);
    for (const OpIndex op : ops_) {
      partition::ModelLayer& layer = model_.chain.layers[layer_of_op_[op]];
      const Bytes data = data_of_[layer_of_op_[op]];
      // There is nothing to save.
      if (layer.stash == data) continue;
      if (const auto again = closure.seconds_of(op)) layer.recompute.push_back({*again, data});
    }
  }

  void add_update_peaks() {
    std::vector<partition::LayerIndex> layer_of_value;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const std::vector<partition::LayerIndex>& users = forward_users_[i];
      const bool is_trained = holds(i) == StorageClass::kParameter && !users.empty();
      layer_of_value.push_back(is_trained ? users.front() : kNoLayer);
    }
    std::vector<partition::ModelLayer>& layers = model_.chain.layers;
    const std::vector<Bytes> peaks =
        update_transients(profile_, roles_, layer_of_value, layers.size());
    for (partition::LayerIndex i = 0; i < layers.size(); ++i) layers[i].update_peak = peaks[i];
  }

  const StepProfile& profile_;
  const profile::StepTape& tape_;
  MeasuredModel model_;
  OperatorRoles roles_;
  OpIndex forward_end_ = 0;
  std::vector<partition::LayerIndex> layer_of_op_;                 ///< By operator.
  std::vector<OpIndex> ops_;                                       ///< By layer, its first.
  std::vector<std::vector<partition::LayerIndex>> forward_users_;  ///< By value, in order.
  std::vector<char> is_kept_;                                      ///< By value.
  std::vector<Bytes> data_of_;  ///< By layer: of its stash what no operator makes.
};

}  // namespace

MeasuredModel measured_model(const StepProfile& profile) {
  MeasuredModel model = ModelReader(profile).read();
  partition::check(model.chain);
  return model;
}

partition::ModelChain chain_of_costs(const std::vector<double>& seconds) {
  partition::ModelChain chain;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    partition::ModelLayer layer;
    layer.name = message("{}", i);
    layer.forward_seconds = seconds[i];
    layer.backward_seconds = 0.0;
    chain.layers.push_back(std::move(layer));
  }
  partition::check(chain);
  return chain;
}

}  // namespace spillway::job
