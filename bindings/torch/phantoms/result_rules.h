#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/phantoms/call_outputs.h"

namespace spillway::phantoms {

/// What an operator's schema, tags and name say about its results.
class ResultRules {
 public:
  /// Which numbers of an argument may decide sizes.
  enum class Numbers : std::uint8_t {
    kAll,
    kZeroOrOne,  ///< Real ones, as the probability of a dropout: 0 and 1 draw nothing.
    kTypeOnly,   ///< Factors, steps and the like, which may differ each time.
  };

  explicit ResultRules(const c10::OperatorHandle& op);

  /// What holds for all calls. Its results are only right when it is kPhantoms and `is_known`.
  const CallOutputs& for_all() const { return for_all_; }
  /// It returns what it has written and draws nothing: calls need not be told apart.
  bool is_known() const { return is_known_; }
  /// A mask in its second argument, a list, would decide how large its result is.
  bool takes_no_masks() const { return takes_no_masks_; }
  /// Its results depend on where in their storages its arguments begin.
  bool sees_offsets() const { return sees_offsets_; }
  /// Its kernel does the same whatever its results hold while it runs: it writes them, or adds up
  /// in them. Known of those that make most. Its scratch memory may hold addresses.
  bool ignores_values() const { return ignores_values_; }
  int generator_argument() const { return generator_argument_; }    ///< -1: it has none.
  const std::vector<Numbers>& numbers() const { return numbers_; }  ///< One per argument.

 private:
  void refuse(Making making, const char* reason);
  void find_returned_arguments(const c10::FunctionSchema& schema);

  CallOutputs for_all_;
  bool is_known_ = false;
  bool takes_no_masks_ = false;
  bool sees_offsets_ = false;
  bool ignores_values_ = false;
  int generator_argument_ = -1;
  std::vector<Numbers> numbers_;
};

}  // namespace spillway::phantoms
