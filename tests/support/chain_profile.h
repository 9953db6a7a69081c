#pragma once

#include <string>

#include "spillway/profile/step_profile.h"

namespace spillway {

struct ChainShape {
  std::uint32_t layers = 6;
  std::uint32_t frozen = 0;  ///< Of them, the first ones: no gradient, no update.
  /// Before and behind the first layer: convolutions of tensors that are too small to be values.
  std::uint32_t small_before = 0, small = 0;
  std::uint32_t activation_pages = 8;
  std::uint32_t parameter_pages = 2;
  bool is_adam = false;  ///< The update makes a root of the state, and a quotient of that.
  Duration forward{4'000'000};
  Duration backward{8'000'000};
  Duration optimizer{1'000'000};
};

/// Writes down the step of a chain of equal layers: forward, loss, backward, optimizer. Forward
/// operators may run again.
class ChainProfile {
 public:
  explicit ChainProfile(const ChainShape& shape) : shape_(shape) {
    profile_.origin = {"recorded", "./chain", "2.11.0", "0.1.0", 2, 5};
    profile_.small_bytes = Bytes(100'000);
    profile_.kinds = {{"aten::convolution", "float[1, 8, 64, 64], float[8, 8, 3, 3]"},
                      {"aten::mse_loss", "float[1, 8, 64, 64]"},
                      {"aten::convolution_backward", "float[1, 8, 64, 64]"},
                      {"aten::addcmul_", "float[8, 8, 3, 3]"},
                      {"aten::sqrt", "float[8, 8, 3, 3]"},
                      {"aten::div", "float[8, 8, 3, 3]"}};
  }

  profile::StepProfile write() {
    using profile::StorageClass;
    const std::uint32_t layers = shape_.layers;
    const ValueIndex input = add_value(shape_.activation_pages, StorageClass::kInput);
    std::vector<ValueIndex> parameters, states, activations{input}, gradients;
    for (std::uint32_t i = 0; i < layers; ++i) {
      const bool is_frozen = i < shape_.frozen;
      parameters.push_back(add_value(shape_.parameter_pages,
                                     is_frozen ? StorageClass::kBuffer : StorageClass::kParameter));
      if (!is_frozen)
        states.push_back(add_value(shape_.parameter_pages, StorageClass::kOptimizerState));
    }
    for (std::uint32_t i = 0; i < shape_.small_before; ++i) add_op(0, shape_.forward, 1, true);
    for (std::uint32_t i = 0; i < layers; ++i) {
      add_op(0, shape_.forward, shape_.activation_pages, true);
      use(activations.back(), false);
      use(parameters[i], false);
      if (i > 0 && i < shape_.frozen) die(activations.back());
      activations.push_back(bear(shape_.activation_pages, StorageClass::kActivation));
      for (std::uint32_t small = 0; i == 0 && small < shape_.small; ++small)
        add_op(0, shape_.forward, 1, true);
    }
    add_op(1, shape_.optimizer, shape_.activation_pages, true);
    use(activations.back(), false);
    ValueIndex flowing = bear(shape_.activation_pages, StorageClass::kGradient);
    for (std::uint32_t i = layers; i-- > shape_.frozen;) {
      add_op(2, shape_.backward, shape_.activation_pages + shape_.parameter_pages, false);
      for (const ValueIndex value : {flowing, activations[i], activations[i + 1], parameters[i]})
        use(value, false);
      die(flowing);
      die(activations[i + 1]);
      gradients.push_back(bear(shape_.parameter_pages, StorageClass::kGradient));
      flowing = bear(shape_.activation_pages, StorageClass::kGradient);
    }
    die(flowing);
    if (shape_.frozen > 0) die(activations[shape_.frozen]);
    ValueIndex quotient = profile::kNoValue;
    for (std::uint32_t i = shape_.frozen; i < layers; ++i) {
      const ValueIndex state = states[i - shape_.frozen];
      if (shape_.is_adam) quotient = add_quotient(state);
      add_op(3, shape_.optimizer, 0, false);
      use(parameters[i], true);
      use(state, true);
      if (shape_.is_adam) {
        use(quotient, false);
        die(quotient);
      }
      use(gradients[layers - 1 - i], false);
      die(gradients[layers - 1 - i]);
    }
    return std::move(profile_);
  }

 private:
  using ValueIndex = profile::ValueIndex;

  ValueIndex add_value(std::uint32_t pages, profile::StorageClass storage_class) {
    const auto index = static_cast<ValueIndex>(profile_.tape.values.size());
    profile_.tape.values.push_back({.pages = pages, .becomes = index});
    profile_.class_of_value.push_back(storage_class);
    profile_.bytes_of_value.push_back(pages * profile_.page_size);
    return index;
  }

  ValueIndex add_quotient(ValueIndex state) {
    add_op(4, shape_.optimizer, shape_.parameter_pages, false);
    use(state, false);
    const ValueIndex root = bear(shape_.parameter_pages, profile::StorageClass::kUnknown);
    add_op(5, shape_.optimizer, shape_.parameter_pages, false);
    use(root, false);
    die(root);
    return bear(shape_.parameter_pages, profile::StorageClass::kUnknown);
  }

  void add_op(std::uint32_t kind, Duration time, std::uint32_t inside_peak, bool is_replayable) {
    profile::TapeOp op;
    op.signature = 1000 + kind;
    op.time = time;
    op.first_use = static_cast<std::uint32_t>(profile_.tape.uses.size());
    op.inside_peak_pages = inside_peak;
    op.is_replayable = is_replayable;
    profile_.tape.ops.push_back(op);
    profile_.kind_of_op.push_back(kind);
    profile_.spread_of_op.push_back(time / 100);
  }

  void use(ValueIndex value, bool writes) {
    profile_.tape.uses.push_back({value, writes});
    ++profile_.tape.ops.back().use_count;
  }

  profile::OpIndex here() const {
    return static_cast<profile::OpIndex>(profile_.tape.ops.size() - 1);
  }

  ValueIndex bear(std::uint32_t pages, profile::StorageClass storage_class) {
    const ValueIndex value = add_value(pages, storage_class);
    profile_.tape.values[value].birth = here();
    profile_.tape.values[value].becomes = profile::kNoValue;
    return value;
  }

  void die(ValueIndex value) { profile_.tape.values[value].death = here(); }

  const ChainShape shape_;
  profile::StepProfile profile_;
};

inline profile::StepProfile chain_profile(const ChainShape& shape = {}) {
  return ChainProfile(shape).write();
}

}  // namespace spillway
