#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "spillway/phantoms/output_memo.h"
#include "watched_calls.h"

namespace spillway::phantoms {

using at::Tensor;

/// Sees a program's operators, and makes for each of them what a rank would that does not own it:
/// from arguments that cannot be touched. Then the operator runs, and what was made is compared
/// with what it gives: metadata, aliases, and the state of the generator.
class PhantomCalls final : public recompute::CallWatcher {
 public:
  PhantomCalls();

  bool is_made_of_parts(const c10::OperatorHandle& op, const torch::jit::Stack& stack) override;
  void around(const c10::OperatorHandle& op, torch::jit::Stack& stack,
              const std::function<void()>& run) override;

  OutputMemo memo;
  std::map<std::string, int> made;             ///< Calls by operator.
  std::map<std::string, std::string> refused;  ///< Reasons by operator.

 private:
  const recompute::Watched watched_{*this};
};

struct Case {
  std::string op;  ///< Of which phantoms must be made.
  std::function<void()> call;
};

/// Tables of operators as trainers call them.
class Phantoms : public ::testing::Test {
 protected:
  Phantoms() { at::manual_seed(7); }

  /// Runs each case twice: the second time nothing may be left to learn. No other operator may be
  /// refused than those that touch no bytes.
  void check(const std::vector<Case>& cases);
  /// For a reason that begins so.
  void check_refused(const std::string& reason, const std::vector<Case>& cases);
};

inline Tensor rnd(at::IntArrayRef sizes, at::TensorOptions options = {}) {
  return at::randn(sizes, options);
}

inline Tensor leaf(at::IntArrayRef sizes) { return rnd(sizes).requires_grad_(); }

inline void backward(const Tensor& result) {
  // Not `sum`: its gradient is an expanded tensor with strides of zero.
  result.backward(rnd(result.sizes(), result.options()));
}

}  // namespace spillway::phantoms
