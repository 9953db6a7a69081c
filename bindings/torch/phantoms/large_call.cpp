#include "large_call.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/phantoms/operator_names.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_cache.h"
#include "trial_run.h"

namespace spillway::phantoms {
namespace {

constexpr std::int64_t kLarge = std::int64_t{1} << 20;  ///< Elements.
/// Kernels treat what is left behind full vectors in another way: small calls have as much of it.
constexpr std::int64_t kVectors = 64;
constexpr std::int64_t kStep = 64 * kVectors;

/// How calls of an operator say how large what they fill is.
struct FillRule {
  explicit FillRule(const c10::OperatorHandle& op) {
    const std::string_view name = op.schema().name();
    const std::string_view overload = op.schema().overload_name();
    const auto& arguments = op.schema().arguments();
    if (!name.starts_with("aten::") || overload.find("out") != std::string_view::npos) return;
    is_in_place = fills_by_draws(name, overload);
    const bool writes =
        std::any_of(arguments.begin(), arguments.end(),
                    [](const c10::Argument& argument) { return argument.alias_info() != nullptr; });
    is_like_arguments =
        !writes && (op.hasTag(at::Tag::pointwise) ||
                    is_any(name, {"aten::clone", "aten::zeros_like", "aten::ones_like",
                                  "aten::full_like", "aten::rand_like", "aten::randn_like"}));
    format_argument = position_of("memory_format", arguments);
    if (!is_any(name, {"aten::zeros", "aten::ones", "aten::full", "aten::rand", "aten::randn",
                       "aten::randint"}))
      return;
    size_argument = position_of("size", arguments);
  }

  static int position_of(std::string_view name, const std::vector<c10::Argument>& arguments) {
    const auto found =
        std::find_if(arguments.begin(), arguments.end(),
                     [name](const c10::Argument& argument) { return argument.name() == name; });
    return found == arguments.end() ? -1 : static_cast<int>(found - arguments.begin());
  }

  bool is_in_place = false;        ///< As their first argument.
  bool is_like_arguments = false;  ///< A new tensor like each of the arguments.
  int size_argument = -1;          ///< A new tensor, of that size; -1: none.
  int format_argument = -1;        ///< How it lies in memory; -1: none.
};

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

/// A tensor that nobody looks into.
at::Tensor vector_like(const at::Tensor& tensor, std::int64_t size) {
  PlainTensor plain = PlainTensor::of(*tensor.unsafeGetTensorImpl());
  plain.offset = 0;
  plain.sizes = {size};
  plain.strides = {1};
  return plain.over(c10::Storage(c10::Storage::use_byte_size_t(),
                                 static_cast<std::size_t>(size) * tensor.element_size(),
                                 c10::DataPtr(nullptr, tensor.device())));
}

class LargeCall {
 public:
  LargeCall(const FillRule& rule, c10::ArrayRef<c10::IValue> arguments)
      : rule_(rule), arguments_(arguments.vec()) {
    if (rule.size_argument >= 0) {
      const c10::IValue& size = arguments_[static_cast<std::size_t>(rule.size_argument)];
      if (!size.isIntList()) return;
      sizes_ = size.toIntVector();
    } else if (!find_filled()) {
      return;
    }
    // Sizes that LibTorch refuses are not large.
    std::int64_t elements = 1;
    for (const std::int64_t length : sizes_)
      if (length < 0 || __builtin_mul_overflow(elements, length, &elements)) return;
    elements_ = elements;
  }

  bool is_large() const { return elements_ >= kLarge; }
  std::int64_t small(std::int64_t steps) const { return steps * kStep + elements_ % kVectors; }

  std::vector<c10::IValue> arguments_of(std::int64_t size) const {
    std::vector<c10::IValue> arguments = arguments_;
    for (const std::size_t filled : filled_)
      arguments[filled] = vector_like(arguments[filled].toTensor(), size);
    if (rule_.size_argument >= 0)
      arguments[static_cast<std::size_t>(rule_.size_argument)] = std::vector<std::int64_t>{size};
    return arguments;
  }

  /// Whether a small call has made what it should.
  bool is_as_expected(const CallOutputs& outputs, std::int64_t size) const {
    if (outputs.making != Making::kPhantoms || outputs.draws_by_state ||
        outputs.tensors.size() != 1)
      return false;
    const TensorMade& made = outputs.tensors.front();
    const bool is_vector =
        made.sizes.size() == 1 && made.sizes[0] == size && made.strides[0] == 1 && made.offset == 0;
    if (rule_.is_in_place) return is_vector && made.from == TensorMade::From::kArgument;
    return is_vector && made.from == TensorMade::From::kNewStorage &&
           outputs.storages.size() == 1 &&
           outputs.storages[0] == static_cast<std::size_t>(size) * c10::elementSize(made.dtype);
  }

  CallOutputs grown(CallOutputs outputs, std::uint64_t draws) const {
    TensorMade& made = outputs.tensors.front();
    made.sizes.assign(sizes_.begin(), sizes_.end());
    const std::vector<std::int64_t> strides = strides_of(sizes_);
    made.strides.assign(strides.begin(), strides.end());
    if (!rule_.is_in_place)
      outputs.storages[0] = static_cast<std::size_t>(elements_) * c10::elementSize(made.dtype);
    outputs.draws = draws;
    return outputs;
  }
  std::int64_t elements() const { return elements_; }

 private:
  /// The tensors among the arguments that the call treats element by element. False: it has others.
  bool find_filled() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const c10::IValue& value = arguments_[i];
      if (static_cast<int>(i) == rule_.format_argument && !value.isNone() &&
          value.toMemoryFormat() != c10::MemoryFormat::Preserve)
        return false;
      if (value.isList() || !value.isTensor()) continue;
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) return false;
      if (tensor.dim() == 0) continue;
      if (filled_.empty()) sizes_ = tensor.sizes().vec();
      if (tensor.sizes() != sizes_ || tensor.strides() != strides_of(sizes_)) return false;
      filled_.push_back(i);
    }
    return !filled_.empty() && (!rule_.is_in_place || filled_ == std::vector<std::size_t>{0});
  }

  const FillRule& rule_;
  const std::vector<c10::IValue> arguments_;
  std::vector<std::size_t> filled_;  ///< Numbers of arguments.
  std::vector<std::int64_t> sizes_;
  std::int64_t elements_ = 0;
};

}  // namespace

std::optional<CallOutputs> outputs_by_small_calls(const c10::OperatorHandle& op,
                                                  const ResultRules& rules,
                                                  c10::ArrayRef<c10::IValue> arguments,
                                                  c10::DispatchKeySet hidden_keys) {
  thread_local recompute::OperatorCache<FillRule> fills;
  const FillRule& rule = fills.of(op);
  if (!rule.is_in_place && !rule.is_like_arguments && rule.size_argument < 0) return std::nullopt;
  const LargeCall call(rule, arguments);
  if (!call.is_large()) return std::nullopt;
  std::vector<CallOutputs> small;
  for (const std::int64_t steps : {1, 2, 5}) {
    const std::vector<c10::IValue> some = call.arguments_of(call.small(steps));
    small.push_back(TrialRun(op, rules, some, hidden_keys).learn());
    if (!call.is_as_expected(small.back(), call.small(steps))) return std::nullopt;
  }
  const std::uint64_t of_step = small[1].draws - small[0].draws;
  if (small[2].draws != small[0].draws + 4 * of_step || of_step % kStep != 0) return std::nullopt;
  // A GPU draws by its threads, of which there are no more from some size on.
  if (small[0].draws > 0 &&
      recompute::generator_of(arguments, rules.generator_argument()).device().is_cuda())
    return std::nullopt;
  const auto more = static_cast<std::uint64_t>(call.elements() - call.small(1));
  return call.grown(small[0], small[0].draws + of_step / kStep * more);
}

}  // namespace spillway::phantoms
