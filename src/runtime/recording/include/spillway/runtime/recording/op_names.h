#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
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
  OpNames() = default;
  /// Keeps the first `most` of them: trainers whose shapes never repeat would fill memory.
  explicit OpNames(std::size_t most) : most_(most) {}

  /// Asks for the text once per signature.
  void note(std::uint64_t signature, const OpText& text);
  std::optional<profile::OpKind> find(std::uint64_t signature) const;
  /// The same, or "unknown".
  profile::OpKind kind_of(std::uint64_t signature) const;

 private:
  const std::size_t most_ = std::numeric_limits<std::size_t>::max();
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, profile::OpKind> kinds_;
};

}  // namespace spillway::runtime
