#include "operator_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "names.h"

namespace spillway::emulated {
namespace {

// Their kernels for CUDA fetch such tensors themselves.
constexpr std::array<std::string_view, 8> kTakeHostTensors = {
    "aten::index",           "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_ctc_loss",
    "aten::_cudnn_ctc_loss", "aten::_foreach_",        "aten::copy_",         "aten::_cudnn_rnn"};

// They return numbers that follow from the sizes of their arguments.
constexpr std::array<std::string_view, 2> kReturnSizes = {
    "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention"};

bool returns_values(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       return result.type()->str().find("Tensor") == std::string::npos;
                     });
}

void read_arguments(const c10::FunctionSchema& schema, OperatorFacts& facts) {
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const bool declared =
        arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    facts.writes.push_back(declared);
    if (!declared && (name == "running_mean" || name == "running_var") &&
        schema.name().find("backward") == std::string::npos)
      facts.statistics.push_back(int(i));
    if (name == "training") facts.training = int(i);
    if (name == "dropout_p" || name == "dropout" || name == "p") facts.chance = int(i);
    if (arguments[i].type()->str().find("Generator") != std::string::npos) facts.generator = int(i);
  }
  // A recurrent network advances the state that its dropout draws from.
  const auto state = schema.argumentIndexWithName("dropout_state");
  if (state && schema.name() == "aten::_cudnn_rnn") facts.writes[std::size_t(*state)] = true;
}

}  // namespace

OperatorFacts facts_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  OperatorFacts facts;
  facts.name = schema.overload_name().empty() ? name : name + "." + schema.overload_name();
  read_arguments(schema, facts);
  facts.draws = facts.generator >= 0 || op.hasTag(at::Tag::nondeterministic_seeded);
  facts.is_indexing = name == "aten::index" || name == "aten::_unsafe_index";
  facts.sizes_depend_on_data = (op.hasTag(at::Tag::dynamic_output_shape) && !facts.is_indexing) ||
                               op.hasTag(at::Tag::data_dependent_output) ||
                               (returns_values(schema) && !begins_with_one(kReturnSizes, name));
  facts.takes_host_tensors = begins_with_one(kTakeHostTensors, name);
  facts.is_copy = facts.name == "aten::copy_";
  facts.workspace = workspace_of(name);
  facts.mapping = mapping_of(facts.name);
  return facts;
}

}  // namespace spillway::emulated
