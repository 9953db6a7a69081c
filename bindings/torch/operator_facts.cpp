#include "operator_facts.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "spillway/base/mix.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::torch_binding {
namespace {

bool has_prefix(const std::string& name, std::string_view prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

/// Composite operators call results views of an argument that may be copies of it.
Access access_to(const c10::Argument& argument, bool is_composite) {
  const auto* alias = argument.alias_info();
  if (alias == nullptr) return Access::kRead;
  if (alias->isWrite()) return argument.kwarg_only() ? Access::kResult : Access::kWrite;
  return is_composite ? Access::kRead : Access::kView;
}

/// Kernels of batch norm write running statistics without a word of it in their schemas.
bool is_written_in_secret(const c10::Argument& argument, const std::string& name) {
  return (argument.name() == "running_mean" || argument.name() == "running_var") &&
         name.find("batch_norm") != std::string::npos;
}

/// They ask where a tensor is, and touch none of it.
bool only_asks(const std::string& name) {
  return name == "aten::is_pinned" || name == "aten::record_stream";
}

bool may_hold_tensors(const c10::Argument& argument) {
  return argument.type()->str().find("Tensor") != std::string::npos;
}

bool only_makes_views(const c10::FunctionSchema& schema, const std::vector<Access>& accesses) {
  // First what is cheap: at the start all operators are asked, and few make views.
  if (std::find(accesses.begin(), accesses.end(), Access::kView) == accesses.end()) return false;
  for (std::size_t i = 0; i < accesses.size(); ++i)
    if (accesses[i] != Access::kView && may_hold_tensors(schema.arguments()[i])) return false;
  return true;
}

}  // namespace

OperatorFacts::OperatorFacts(const c10::OperatorHandle& op)
    : is_composite(op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
  const c10::FunctionSchema& schema = op.schema();
  fills_outputs =
      !has_prefix(schema.name(), "aten::empty") && !has_prefix(schema.name(), "aten::new_empty");
  // A storage that is resized is copied as a whole.
  uses_whole_storages = has_prefix(schema.name(), "aten::resize_");
  for (const c10::Argument& argument : schema.arguments())
    accesses.push_back(only_asks(schema.name()) ? Access::kView
                       : is_written_in_secret(argument, schema.name())
                           ? Access::kWrite
                           : access_to(argument, is_composite));
  touches_nothing = only_makes_views(schema, accesses);
  begins_with_list = !schema.arguments().empty() &&
                     schema.arguments()[0].type()->kind() == c10::TypeKind::ListType;
  const recompute::OperatorRules& rules = recompute::rules_of(op);
  is_replayable = rules.objection.empty();
  is_replayable_on_cuda = rules.cuda_objection.empty();
  fills_in_secret = has_prefix(schema.name(), "c10d::");
  goes_on = fills_in_secret || has_prefix(schema.name(), "_c10d_functional");
  makes_blanks = rules.makes_blanks;
  name_hash = 0;
  for (const std::string& part : {schema.name(), schema.overload_name()}) {
    for (const char letter : part) name_hash = mix(name_hash, std::uint64_t(letter));
    name_hash = mix(name_hash, part.size());
  }
}

}  // namespace spillway::torch_binding
