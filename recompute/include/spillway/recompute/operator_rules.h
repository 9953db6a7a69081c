#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::recompute {

/// How a kernel treats an argument.
enum class ArgumentUse : std::uint8_t {
  kRead,
  kReadWrite,        ///< In place.
  kOverwrite,        ///< An `out` argument: what was there before does not matter.
  kUndeclaredWrite,  ///< Written although the schema says otherwise, or beside new results (running
                     ///< statistics). A replay writes into a copy.
};

/// What an operator's schema, tags and registrations say about running it again.
struct OperatorRules {
  explicit OperatorRules(const c10::OperatorHandle& op);

  /// Why it may not run again on the CPU, as the end of a sentence ("makes a view"); empty when it
  /// may.
  std::string objection;
  std::string cuda_objection;  ///< The same on CUDA devices.
  const std::string& objection_on(c10::DeviceType device) const {
    return device == c10::DeviceType::CUDA ? cuda_objection : objection;
  }
  bool makes_blanks = false;  ///< Its results hold one value or none: trainers fill them by hand.
  bool draws_random_numbers = false;
  bool is_unordered_on_cuda = false;  ///< Unless LibTorch is told to be deterministic.
  bool takes_no_masks = false;        ///< A mask would decide how large its result is.
  bool returns_arguments = false;     ///< All its results are arguments that it has written.
  // Positions of arguments; -1 without one.
  int generator_argument = -1;
  int dropout_argument = -1;      ///< Numbers are drawn only when it is not 0.
  int accumulate_argument = -1;   ///< When true, threads add up in an order of their own.
  int training_argument = -1;     ///< When true, it does not read running statistics.
  std::vector<ArgumentUse> uses;  ///< One per argument.
};

/// The rules of an operator, worked out when the calling thread first asks. The reference stays
/// valid as that of an OperatorCache.
const OperatorRules& rules_of(const c10::OperatorHandle& op);

/// Whether the operator may run again, arguments permitting.
inline bool may_replay(const c10::OperatorHandle& op, c10::DeviceType device) {
  return rules_of(op).objection_on(device).empty();
}

/// Takes from the arguments of a call, which lie on the stack, those that it does not read.
void leave_out_unread(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace spillway::recompute
