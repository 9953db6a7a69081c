#include "spillway/runtime/recording/op_names.h"

#include <string>
#include <utility>

#include "spillway/runtime/recording/op_text.h"

namespace spillway::runtime {

using profile::OpKind;

OpKind op_kind(const OpText& text) {
  OpKind kind = op_kind(text.describe());
  if (std::string name = text.name(); !name.empty()) kind.name = std::move(name);
  return kind;
}

OpKind op_kind(const std::string& shown) {
  const auto bracket = shown.find('(');
  OpKind kind;
  kind.name = shown.substr(0, bracket);
  if (bracket == std::string::npos) return kind;
  kind.arguments = shown.substr(bracket + 1);
  if (!kind.arguments.empty() && kind.arguments.back() == ')') kind.arguments.pop_back();
  return kind;
}

void OpNames::note(std::uint64_t signature, const OpText& text) {
  const std::lock_guard lock(mutex_);
  if (kinds_.contains(signature) || kinds_.size() >= most_) return;
  kinds_.emplace(signature, op_kind(text));
}

std::optional<OpKind> OpNames::find(std::uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  const auto found = kinds_.find(signature);
  return found != kinds_.end() ? std::optional(found->second) : std::nullopt;
}

OpKind OpNames::kind_of(std::uint64_t signature) const {
  return find(signature).value_or(OpKind{"unknown", ""});
}

}  // namespace spillway::runtime
