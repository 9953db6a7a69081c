#include "call_kind.h"

#include <c10/core/DefaultDtype.h>

namespace spillway::emulated {
namespace {

class KindText {
 public:
  explicit KindText(const std::vector<Twin>& twins) : twins_(twins) {}

  /// Whether the sizes of results cannot follow from anything else in `value`.
  bool add(const c10::IValue& value) {
    if (value.isTensor()) {
      add_tensor(value.toTensor());
    } else if (value.isInt()) {
      text_ += 'i';
      add_number(value.toInt());
    } else if (value.isBool()) {
      text_ += value.toBool() ? 't' : 'f';
    } else if (value.isDouble() || value.isComplexDouble()) {
      text_ +=
          value.isDouble() ? 'd' : 'c';  // Learning rates and the like: no size follows from them.
    } else if (value.isString()) {
      text_ += 's' + value.toStringRef() + '\0';
    } else if (value.isNone() || value.isDevice() || value.isGenerator()) {
      text_ += 'n';
    } else if (value.isList()) {
      return add_list(value.toListRef());
    } else {
      return false;
    }
    return true;
  }

  template <class Number>
  void add_number(Number number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  std::string take() { return std::move(text_); }

 private:
  void add_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      text_ += 'u';
      return;
    }
    // Results name arguments by their place among those of the device.
    const bool is_twin = next_twin_ < twins_.size() && tensor.is_same(twins_[next_twin_].alias);
    next_twin_ += std::size_t(is_twin);
    text_ += is_twin ? 'T' : 'H';
    add_number(tensor.scalar_type());
    const bool marks[] = {tensor.is_conj(), tensor.is_neg(),
                          tensor.unsafeGetTensorImpl()->is_wrapped_number()};
    for (const bool mark : marks) text_ += mark ? '1' : '0';
    add_number(tensor.dim());
    for (const std::int64_t size : tensor.sizes()) add_number(size);
    for (const std::int64_t stride : tensor.strides()) add_number(stride);
  }

  bool add_list(c10::ArrayRef<c10::IValue> list) {
    text_ += 'l';
    add_number(list.size());
    for (const c10::IValue& value : list)
      if (!add(value)) return false;
    return true;
  }

  const std::vector<Twin>& twins_;
  std::size_t next_twin_ = 0;
  std::string text_;
};

bool has_mask(const CpuCall& call) {
  for (const Twin& twin : call.twins()) {
    if (&twin == &call.twins().front()) continue;  // What is indexed.
    const at::ScalarType type = twin.alias.scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> kind_of(const CpuCall& call) {
  const OperatorFacts& facts = call.facts();
  if (facts.sizes_depend_on_data || !call.can_wait()) return std::nullopt;
  if (facts.is_indexing && has_mask(call)) return std::nullopt;
  KindText text(call.twins());
  text.add_number(c10::get_default_dtype_as_scalartype());
  for (const c10::IValue& value : call.values())
    if (!text.add(value)) return std::nullopt;
  return text.take();
}

}  // namespace spillway::emulated
