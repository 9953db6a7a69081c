#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "packed.h"
#include "spillway/pipeline/ownership/control_hash.h"

namespace spillway::pipeline {

/// A position as the words of a question.
inline std::array<std::uint64_t, 3> words_of(const ControlHash::Position& position) {
  return {position.calls, position.value, 0};
}

Packed packed_calls(const std::vector<ControlHash::Call>& calls);

/// The calls of another rank, with their names.
class UnpackedCalls {
 public:
  explicit UnpackedCalls(const Packed& bytes);
  const std::vector<ControlHash::Call>& calls() const { return calls_; }

 private:
  std::list<std::string> names_;
  std::vector<ControlHash::Call> calls_;
};

/// Where two programs went apart, of which the first has made `ones` calls and the other `others`:
/// a sentence with the next step.
std::string text_apart(const NamedCalls& one, std::uint64_t ones, const NamedCalls& other,
                       std::uint64_t others);

}  // namespace spillway::pipeline
