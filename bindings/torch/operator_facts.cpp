#include "operator_facts.h"

#include <string>
#include <string_view>

namespace spillway::torch_binding {
namespace {

bool has_prefix(const std::string& name, std::string_view prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

/// Composite operators call results views of an argument that may be copies of it.
Access access_to(const c10::Argument& argument, bool is_composite) {
  const auto* alias = argument.alias_info();
  if (alias == nullptr) return Access::kRead;
  if (alias->isWrite()) return Access::kWrite;
  return is_composite ? Access::kRead : Access::kView;
}

bool may_hold_tensors(const c10::Argument& argument) {
  return argument.type()->str().find("Tensor") != std::string::npos;
}

}  // namespace

OperatorFacts::OperatorFacts(const c10::OperatorHandle& op)
    : is_composite(op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
  const c10::FunctionSchema& schema = op.schema();
  fills_outputs =
      !has_prefix(schema.name(), "aten::empty") && !has_prefix(schema.name(), "aten::new_empty");
  // A storage that is resized is copied as a whole.
  uses_whole_storages = has_prefix(schema.name(), "aten::resize_");
  bool makes_view = false;
  bool reads_or_writes = false;
  for (const c10::Argument& argument : schema.arguments()) {
    accesses.push_back(access_to(argument, is_composite));
    const bool is_viewed = accesses.back() == Access::kView;
    makes_view |= is_viewed;
    reads_or_writes |= !is_viewed && may_hold_tensors(argument);
  }
  touches_nothing = makes_view && !reads_or_writes;
}

const OperatorFacts& OperatorFactsCache::of(const c10::OperatorHandle& op) {
  auto& facts = facts_[&op.schema()];
  if (facts == nullptr || facts->accesses.size() != op.schema().arguments().size())
    facts = std::make_unique<OperatorFacts>(op);
  return *facts;
}

}  // namespace spillway::torch_binding
