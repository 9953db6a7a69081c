#include "result_rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "spillway/phantoms/operator_names.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::phantoms {
namespace {

using c10::TypeKind;

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Without the optionals around it.
const c10::Type& bare(const c10::Type& type) {
  return type.kind() == TypeKind::OptionalType ? bare(*type.containedTypes().front()) : type;
}

bool is_list(const c10::Type& type) { return bare(type).kind() == TypeKind::ListType; }

const c10::Type& element(const c10::Type& type) {
  return is_list(type) ? bare(*bare(type).containedTypes().front()) : bare(type);
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

bool only_makes_views(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() &&
         std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

/// Why it touches no bytes; nullptr when it may.
const char* no_bytes(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  if (starts_with_any(name, {"aten::empty", "aten::new_empty", "aten::_empty"}))
    return "hands out memory without filling it";
  if (is_any(name, {"aten::is_same_size", "aten::is_set_to", "aten::is_pinned", "aten::result_type",
                    "aten::_fused_sdp_choice", "aten::_has_same_storage_numel",
                    "aten::_has_compatible_shallow_copy_type", "aten::dim", "aten::numel",
                    "aten::size", "aten::stride", "aten::storage_offset"}) ||
      starts_with_any(name, {"aten::sym_"}))
    return "looks at sizes only";
  if (only_makes_views(op)) return "makes views";
  if (op.hasTag(at::Tag::inplace_view)) return "exchanges what its argument shows";
  return nullptr;
}

/// What neither schema nor tags tell; nullptr when there is nothing.
const char* known_values(std::string_view name) {
  if (starts_with_any(name, {"aten::resize", "aten::_resize"}))
    return "copies its argument into other memory";
  if (is_any(name, {"aten::poisson", "aten::binomial", "aten::_standard_gamma", "aten::multinomial",
                    "aten::_sample_dirichlet", "aten::rrelu_with_noise", "aten::rrelu_with_noise_",
                    "aten::rrelu_with_noise_functional"}))
    return "draws as many random numbers as its arguments' values tell";
  if (is_any(name, {"aten::_pack_padded_sequence"}))
    return "returns as many values as its arguments' values tell";
  if (starts_with_any(name, {"aten::_assert", "aten::_functional_assert", "aten::_linalg_check",
                             "aten::_validate"}))
    return "throws where its arguments' values are wrong";
  if (starts_with_any(name, {"aten::from_file", "aten::_copy_from", "aten::_pin_memory"}))
    return "depends on more than its arguments";
  return nullptr;
}

/// Why it has to run on the bytes; nullptr when it need not.
const char* needs_values(const c10::OperatorHandle& op, bool takes_no_masks) {
  const c10::FunctionSchema& schema = op.schema();
  if (!schema.name().starts_with("aten::")) return "is not one of LibTorch's own";
  if (const char* known = known_values(schema.name())) return known;
  if (op.hasTag(at::Tag::data_dependent_output)) return "reads values";
  if (op.hasTag(at::Tag::dynamic_output_shape) && !takes_no_masks)
    return "returns as many values as its arguments' values tell";
  const auto& returns = schema.returns();
  if (std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
        return element(*result.type()).kind() != TypeKind::TensorType;
      }))
    return "returns numbers";
  const auto& arguments = schema.arguments();
  if (returns.empty() && std::none_of(arguments.begin(), arguments.end(), is_written))
    return "returns nothing";
  return nullptr;
}

/// Sums of products and element by element: no value of a result is an address, a size or an order.
/// (Sorts, for one, run past their end when what they sort changes.)
bool ignores_values(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::pointwise) ||
         starts_with_any(op.schema().name(), {"aten::convolution",
                                              "aten::_convolution",
                                              "aten::conv_",
                                              "aten::slow_conv",
                                              "aten::_slow_conv",
                                              "aten::thnn_conv",
                                              "aten::mkldnn_convolution",
                                              "aten::mkldnn_linear",
                                              "aten::mm",
                                              "aten::bmm",
                                              "aten::addmm",
                                              "aten::baddbmm",
                                              "aten::addbmm",
                                              "aten::_addmm",
                                              "aten::native_batch_norm",
                                              "aten::_native_batch_norm",
                                              "aten::_batch_norm",
                                              "aten::native_layer_norm",
                                              "aten::native_group_norm",
                                              "aten::_softmax",
                                              "aten::_log_softmax",
                                              "aten::_scaled_dot_product_flash_attention_for_cpu",
                                              "aten::avg_pool",
                                              "aten::_adaptive_avg_pool",
                                              "aten::max_pool",
                                              "aten::upsample_",
                                              "aten::_upsample_",
                                              "aten::cat"});
}

ResultRules::Numbers numbers_of(const c10::Argument& argument, std::string_view name) {
  const TypeKind kind = element(*argument.type()).kind();
  if (starts_with_any(name, {"aten::arange", "aten::range"})) return ResultRules::Numbers::kAll;
  if (kind == TypeKind::NumberType) return ResultRules::Numbers::kTypeOnly;
  // Lists of them scale sizes.
  if (kind == TypeKind::FloatType && !is_list(*argument.type()))
    return ResultRules::Numbers::kZeroOrOne;
  return ResultRules::Numbers::kAll;
}

/// The argument that a result is, after it has been written; -1 when it is none.
int returned_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (!is_written(result)) return -1;
  const auto& arguments = schema.arguments();
  const auto found =
      std::find_if(arguments.begin(), arguments.end(), [&result](const c10::Argument& argument) {
        return is_written(argument) &&
               argument.alias_info()->beforeSets() == result.alias_info()->beforeSets();
      });
  return found == arguments.end() ? -1 : static_cast<int>(found - arguments.begin());
}

}  // namespace

ResultRules::ResultRules(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const recompute::OperatorRules& rules = recompute::rules_of(op);
  takes_no_masks_ = rules.takes_no_masks;
  generator_argument_ = rules.generator_argument;
  sees_offsets_ = phantoms::sees_offsets(schema.name());
  ignores_values_ = phantoms::ignores_values(op);
  for (const c10::Argument& argument : schema.arguments())
    numbers_.push_back(numbers_of(argument, schema.name()));
  const char* const values = needs_values(op, takes_no_masks_);
  if (is_composite(op)) {
    refuse(Making::kParts, "stands for other operators");
  } else if (const char* reason = no_bytes(op);
             reason != nullptr && known_values(schema.name()) == nullptr) {
    refuse(Making::kNoBytes, reason);
  } else if (values != nullptr) {
    refuse(Making::kValues, values);
  } else if (!rules.draws_random_numbers) {
    find_returned_arguments(schema);
  }
}

void ResultRules::refuse(Making making, const char* reason) {
  for_all_.making = making;
  for_all_.reason = reason;
}

/// An `out` argument may be of another size before.
void ResultRules::find_returned_arguments(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const c10::Argument& argument) { return argument.is_out(); }))
    return;
  for (const c10::Argument& result : schema.returns()) {
    const int returned = returned_argument(schema, result);
    if (returned < 0) {
      for_all_.results.clear();
      return;
    }
    for_all_.results.push_back(
        {ResultMade::Kind::kArgument, static_cast<std::uint32_t>(returned), 0});
  }
  is_known_ = true;
}

}  // namespace spillway::phantoms
