#include "spillway/recompute/element_lists.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "spillway/base/per_thread.h"
#include "spillway/recompute/operator_cache.h"

namespace spillway::recompute {
namespace {

struct ListRule {
  explicit ListRule(const c10::OperatorHandle& op) {
    const std::string_view name = op.operator_name().name;
    const auto begins = [&](std::string_view text) { return name.substr(0, text.size()) == text; };
    const auto& returns = op.schema().returns();
    const bool is_known = begins("aten::_foreach_") || begins("aten::_fused_adam") ||
                          begins("aten::_fused_sgd") || begins("aten::_fused_adagrad") ||
                          name == kUnscale;
    is_by_element = is_known && op.operator_name().overload_name != "out" &&
                    (returns.empty() ||
                     (returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType));
  }
  bool is_by_element = false;  ///< As far as its schema tells.
};

}  // namespace

bool is_by_element(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  // Functions at exit call operators, too, when thread-local objects are gone.
  if (!per_thread<OperatorCache<ListRule>>().of(op).is_by_element || arguments.empty() ||
      !arguments[0].isTensorList())
    return false;
  // A tensor that has a number for each element.
  const auto size = static_cast<std::int64_t>(arguments[0].toListRef().size());
  return std::none_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().dim() == 1 && value.toTensor().size(0) == size;
  });
}

torch::jit::Stack arguments_for(c10::ArrayRef<c10::IValue> arguments, const ListMembers& members) {
  const std::size_t size = arguments[0].toListRef().size();
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  for (c10::IValue& value : stack) {
    if (!value.isList() || value.toListRef().size() != size) continue;
    const c10::List<c10::IValue> whole = value.toList();
    c10::List<c10::IValue> part = c10::impl::GenericList(whole.elementType());
    for (const std::size_t member : members) part.push_back(whole.get(member));
    value = std::move(part);
  }
  return stack;
}

}  // namespace spillway::recompute
