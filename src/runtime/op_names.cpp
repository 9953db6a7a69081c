#include "spillway/runtime/op_names.h"

#include <string>

#include "spillway/runtime/runtime.h"

namespace spillway::runtime {

using profile::OpKind;

OpKind op_kind(const OpText& text) {
  // "aten::mm(float[2, 3], float[3, 4])"
  const std::string shown = text.describe();
  const auto bracket = shown.find('(');
  OpKind kind;
  kind.name = text.name();
  if (kind.name.empty()) kind.name = shown.substr(0, bracket);
  if (bracket == std::string::npos) return kind;
  kind.arguments = shown.substr(bracket + 1);
  if (!kind.arguments.empty() && kind.arguments.back() == ')') kind.arguments.pop_back();
  return kind;
}

void OpNames::note(std::uint64_t signature, const OpText& text) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = kinds_.try_emplace(signature);
  if (is_new) entry->second = op_kind(text);
}

OpKind OpNames::kind_of(std::uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  const auto found = kinds_.find(signature);
  return found != kinds_.end() ? found->second : OpKind{"unknown", ""};
}

}  // namespace spillway::runtime
