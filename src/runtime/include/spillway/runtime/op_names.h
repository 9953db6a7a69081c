#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "spillway/profile/step_profile.h"

namespace spillway::runtime {

class OpText;

/// Name and arguments of an operator.
profile::OpKind op_kind(const OpText& text);
/// The same of what `OpText::describe` says: "aten::mm(float[2, 3], float[3, 4])".
profile::OpKind op_kind(const std::string& shown);

/// How the operators of a run are called, by their signatures on the tape. Any thread.
class OpNames {
 public:
  /// Asks for the text once per signature.
  void note(std::uint64_t signature, const OpText& text);
  /// "unknown" where nobody noted it.
  profile::OpKind kind_of(std::uint64_t signature) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, profile::OpKind> kinds_;
};

}  // namespace spillway::runtime
