#pragma once

#include <string>
#include <utility>

#include "spillway/runtime/recording/op_text.h"

namespace spillway::runtime {

/// An operator's text as tests need it: "aten::mm(float[64])" from its two parts.
class NamedOp final : public OpText {
 public:
  explicit NamedOp(std::string name, std::string arguments = {})
      : name_(std::move(name)), arguments_(std::move(arguments)) {}
  std::string describe() const override { return name_ + arguments_; }
  std::string name() const override { return name_; }

 private:
  std::string name_;
  std::string arguments_;
};

}  // namespace spillway::runtime
