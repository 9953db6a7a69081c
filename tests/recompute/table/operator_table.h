#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checked_calls.h"

namespace spillway::recompute {

using at::Tensor;

struct Case {
  std::string op;  ///< That must have been replayed.
  std::function<void()> call;
};

inline Tensor rnd(at::IntArrayRef sizes, at::TensorOptions options = {}) {
  return at::randn(sizes, options);
}

inline Tensor leaf(at::IntArrayRef sizes) { return rnd(sizes).requires_grad_(); }

inline void backward(const Tensor& result) {
  // Not `sum`: its gradient is an expanded tensor with strides of zero.
  result.backward(rnd(result.sizes(), result.options()));
}

/// Tables of operators as trainers call them, each run again in place and elsewhere.
class Operators : public ::testing::Test {
 protected:
  Operators() {
    PagedTable::instance();
    at::manual_seed(7);
  }

  void check(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      SCOPED_TRACE(one.op);
      CheckedCalls calls(*engine_);
      {
        const Watched watched(calls);
        one.call();
      }
      EXPECT_THAT(calls.replayed, ::testing::Contains(::testing::Key(one.op)))
          << reason(calls, one.op);
    }
  }

  static std::string reason(const CheckedCalls& calls, const std::string& op) {
    const auto found = calls.refused.find(op);
    std::string text = found == calls.refused.end() ? "not called" : found->second;
    for (const auto& [name, count] : calls.replayed) text += "; replayed " + name;
    return text;
  }

  std::shared_ptr<ReplayEngine> engine_ = make_engine();
};

}  // namespace spillway::recompute
