#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <string>
#include <utility>

#include "spillway/runtime/recording/op_text.h"

namespace spillway::torch_binding {

/// "aten::mm(float[2, 3], float[3, 4])", "aten::stack(float[2, 3] and 9 more)"
std::string call_text(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

/// "aten::add.Tensor"
std::string full_name(const c10::FunctionSchema& schema);

/// An operator whose arguments lie on a stack until its kernel has ended. The stack may move while
/// it runs.
class StackText final : public runtime::OpText {
 public:
  StackText(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, std::size_t count)
      : schema_(schema), stack_(stack), begin_(stack.size() - count), count_(count) {}

  std::string describe() const override {
    if (stack_.size() < begin_ + count_) return schema_.name();
    // Not in braces: they would make a list of two values.
    return call_text(schema_, c10::ArrayRef<c10::IValue>(stack_.data() + begin_, count_));
  }
  std::string name() const override { return full_name(schema_); }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
  std::size_t begin_;
  std::size_t count_;
};

/// An operator with arguments that stay while it runs.
class ArgumentsText final : public runtime::OpText {
 public:
  ArgumentsText(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments)
      : schema_(schema), arguments_(arguments) {}
  std::string describe() const override { return call_text(schema_, arguments_); }
  std::string name() const override { return full_name(schema_); }

 private:
  const c10::FunctionSchema& schema_;
  c10::ArrayRef<c10::IValue> arguments_;
};

/// An operator whose arguments are gone when its kernel runs.
class KeptText final : public runtime::OpText {
 public:
  KeptText(const c10::FunctionSchema& schema, std::string text)
      : schema_(schema), text_(std::move(text)) {}
  std::string describe() const override { return text_; }
  std::string name() const override { return full_name(schema_); }

 private:
  const c10::FunctionSchema& schema_;
  std::string text_;
};

}  // namespace spillway::torch_binding
