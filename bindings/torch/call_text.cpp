#include "call_text.h"

#include <ATen/core/Tensor.h>

#include <sstream>

namespace spillway::torch_binding {

std::string call_text(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  std::ostringstream out;
  out << schema.name() << '(';
  bool first = true;
  for (const c10::IValue& argument : arguments) {
    const bool is_list = argument.isTensorList() && !argument.toListRef().empty();
    if (!is_list && !argument.isTensor()) continue;
    const at::Tensor& tensor = (is_list ? argument.toListRef()[0] : argument).toTensor();
    if (!tensor.defined()) continue;
    out << (first ? "" : ", ") << tensor.dtype().name() << tensor.sizes();
    if (is_list && argument.toListRef().size() > 1)
      out << " and " << argument.toListRef().size() - 1 << " more";
    first = false;
  }
  out << ')';
  return out.str();
}

std::string full_name(const c10::FunctionSchema& schema) {
  const std::string& overload = schema.overload_name();
  return overload.empty() ? schema.name() : schema.name() + "." + overload;
}

}  // namespace spillway::torch_binding
