#include "spillway/recompute/operator_rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "device_rules.h"
#include "spillway/base/per_thread.h"
#include "spillway/recompute/operator_cache.h"

namespace spillway::recompute {
namespace {

using c10::TypeKind;

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool fills_nothing(std::string_view name) {
  return starts_with_any(name, {"aten::empty", "aten::new_empty", "aten::_empty"});
}

bool fills_with_one_value(std::string_view name) {
  constexpr std::array<std::string_view, 15> kNames{
      "aten::zeros",     "aten::zeros_like", "aten::new_zeros",     "aten::_efficientzerotensor",
      "aten::ones",      "aten::ones_like",  "aten::new_ones",      "aten::full",
      "aten::full_like", "aten::new_full",   "aten::zero",          "aten::zero_",
      "aten::fill",      "aten::fill_",      "aten::_foreach_zero_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// What neither schema nor tags tell; nullptr when there is nothing.
const char* known_objection(std::string_view name) {
  if (fills_nothing(name)) return "hands out memory without filling it";
  // Through pointers, which nobody sees: another run would give the one value back.
  if (fills_with_one_value(name)) return "makes memory ready that may be filled by hand";
  if (starts_with_any(name, {"aten::_unsafe_view", "aten::lift", "aten::_lazy_clone"}))
    return "makes a view";
  // It counts from the first byte of the storage, of which only the shown part is kept.
  if (starts_with_any(name, {"aten::as_strided", "aten::_as_strided"}))
    return "looks at its storage past its tensor";
  if (starts_with_any(name, {"aten::resize", "aten::_resize", "aten::set_", "aten::set.",
                             "aten::shallow_copy_data_"}))
    return "exchanges the memory of its argument";
  if (starts_with_any(name, {"aten::from_file", "aten::_pin_memory", "aten::_copy_from"}))
    return "depends on more than its arguments";
  if (name.starts_with("aten::mkldnn_rnn_layer")) return "returns workspace that it does not fill";
  // Threads add their parts in the order in which they end.
  if (starts_with_any(name, {"aten::histogram", "aten::_histogramdd"}))
    return "adds up in an order that differs each time";
  return nullptr;
}

bool is_running_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

/// Forward writes running statistics in training, which some schemas say and some do not; the
/// backward of a recurrent layer computes in the workspace that its forward has filled. The results
/// are new.
bool is_written_beside_results(std::string_view op, const c10::Argument& argument) {
  if (op.ends_with("_backward")) return argument.name() == "workspace";
  return is_running_statistic(argument);
}

bool can_be_kept(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::NumberType:
    case TypeKind::ComplexType:
    case TypeKind::StringType:
    case TypeKind::SymIntType:
    case TypeKind::SymFloatType:
    case TypeKind::SymBoolType:
    case TypeKind::GeneratorType:
    case TypeKind::DeviceObjType:
    case TypeKind::LayoutType:
    case TypeKind::ScalarTypeType:
    case TypeKind::MemoryFormatType: return true;
    case TypeKind::ListType:
    case TypeKind::OptionalType: return can_be_kept(*type.containedTypes().front());
    default: return false;
  }
}

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == TypeKind::TensorType) return true;
  const bool wraps = type.kind() == TypeKind::ListType || type.kind() == TypeKind::OptionalType;
  return wraps && holds_tensors(*type.containedTypes().front());
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

ArgumentUse use_of(std::string_view op, const c10::Argument& argument) {
  // Schemas of collectives do not say which of their tensors they fill.
  if (op.starts_with("c10d::") && holds_tensors(*argument.type())) return ArgumentUse::kReadWrite;
  if (is_written_beside_results(op, argument)) return ArgumentUse::kUndeclaredWrite;
  if (!is_written(argument)) return ArgumentUse::kRead;
  return argument.is_out() ? ArgumentUse::kOverwrite : ArgumentUse::kReadWrite;
}

std::string objection_to_arguments(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (!can_be_kept(*argument.type()))
      return "takes '" + argument.name() + "' of type " + argument.type()->str() +
             ", which cannot be kept";
  return {};
}

/// Results must be either all new or all what was written.
const char* objection_to_results(const c10::FunctionSchema& schema, bool writes) {
  bool has_new = false;
  bool has_written = false;
  for (const c10::Argument& result : schema.returns()) {
    if (!holds_tensors(*result.type())) continue;
    const auto* alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) return "makes a view";
    (alias == nullptr ? has_new : has_written) = true;
  }
  if (!has_new && !writes) return "returns no tensor";
  if (has_new && (has_written || writes)) return "writes arguments beside its results";
  return nullptr;
}

const char* objection_by_tags(const c10::OperatorHandle& op, bool takes_no_masks) {
  if (op.hasTag(at::Tag::data_dependent_output)) return "reads values";
  if (op.hasTag(at::Tag::dynamic_output_shape) && !takes_no_masks)
    return "returns as many values as its arguments' values tell";
  if (op.hasTag(at::Tag::inplace_view)) return "exchanges the memory of its argument";
  if (op.hasTag(at::Tag::nondeterministic_bitwise)) return "returns other bits each time";
  return nullptr;
}

bool writes_arguments(const std::vector<ArgumentUse>& uses) {
  return std::any_of(uses.begin(), uses.end(), [](ArgumentUse use) {
    return use == ArgumentUse::kReadWrite || use == ArgumentUse::kOverwrite;
  });
}

/// Whoever draws from the process's generator may do so on several threads: where another run
/// begins would be a guess, and its state cannot be exchanged under them.
const char* objection_to_draws(const OperatorRules& rules, c10::DispatchKey backend) {
  if (backend != c10::DispatchKey::CPU) return nullptr;  // See CountedDraws.
  const bool may_take_another = rules.generator_argument >= 0 || rules.dropout_argument >= 0;
  if (!rules.draws_random_numbers || may_take_another) return nullptr;
  return "draws from the default generator, as other threads may meanwhile";
}

/// `backend`: of the kernels, CPU or CUDA.
std::string objection_to_call(const c10::OperatorHandle& op, const OperatorRules& rules,
                              c10::DispatchKey backend) {
  const bool is_on_cpu = backend == c10::DispatchKey::CPU;
  const c10::FunctionSchema& schema = op.schema();
  if (!schema.name().starts_with("aten::")) return "is not one of LibTorch's own";
  if (const char* known = known_objection(schema.name())) return known;
  if (!is_on_cpu)
    if (const char* known = known_objection_on_cuda(schema.name())) return known;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !op.hasKernelForDispatchKey(backend))
    return "stands for other operators";
  if (!op.hasComputedKernelForDispatchKey(backend))
    return is_on_cpu ? "has no kernel for the CPU" : "has no kernel for CUDA";
  if (const char* tagged = objection_by_tags(op, rules.takes_no_masks)) return tagged;
  if (const char* shared = objection_to_draws(rules, backend)) return shared;
  if (const char* wrong = objection_to_results(schema, writes_arguments(rules.uses))) return wrong;
  return objection_to_arguments(schema);
}

}  // namespace

OperatorRules::OperatorRules(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    uses.push_back(use_of(name, argument));
    if (argument.type()->str().find("Generator") != std::string::npos)
      generator_argument = static_cast<int>(i);
    if (argument.name() == "accumulate") accumulate_argument = static_cast<int>(i);
    if (argument.name() == "dropout_p") dropout_argument = static_cast<int>(i);
    // In training, backward uses the statistics of its own batch. It takes the running ones, too,
    // and would have to come before the next micro-batch's forward, which changes them.
    if (name == "aten::native_batch_norm_backward" && argument.name() == "train")
      training_argument = static_cast<int>(i);
  }
  takes_no_masks = name == "aten::index" || name == "aten::_unsafe_index";
  draws_random_numbers = generator_argument >= 0 || op.hasTag(at::Tag::nondeterministic_seeded);
  returns_arguments = writes_arguments(uses);
  makes_blanks = fills_nothing(name) || fills_with_one_value(name);
  is_unordered_on_cuda = recompute::is_unordered_on_cuda(name);
  objection = objection_to_call(op, *this, c10::DispatchKey::CPU);
  cuda_objection = objection_to_call(op, *this, c10::DispatchKey::CUDA);
}

const OperatorRules& rules_of(const c10::OperatorHandle& op) {
  return per_thread<OperatorCache<OperatorRules>>().of(op);
}

void leave_out_unread(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const int training = rules_of(op).training_argument;
  if (training < 0) return;
  const auto& arguments = op.schema().arguments();
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
  if (!first[training].toBool()) return;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (is_running_statistic(arguments[i])) first[static_cast<std::ptrdiff_t>(i)] = c10::IValue();
}

void watch_operators() {
  struct Listener final : c10::OpRegistrationListener {
    void onOperatorRegistered(const c10::OperatorHandle&) override {}
    void onOperatorDeregistered(const c10::OperatorHandle&) override {
      ended_operators.fetch_add(1, std::memory_order_relaxed);
    }
  };
  // Stays until the process is gone.
  static const auto& registration = *new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
  static_cast<void>(registration);
}

}  // namespace spillway::recompute
