#include "mapping.h"

#include <unordered_map>

#include "mappings/table.h"

namespace spillway::emulated {

const c10::IValue& Arguments::value(std::string_view name) const {
  const auto index = schema_.argumentIndexWithName(name);
  TORCH_CHECK(index, "emulated CUDA: ", schema_.name(), " has no argument ", name,
              "; its mapping is for another release of LibTorch");
  return values_.at(std::size_t(*index));
}

std::optional<at::Tensor> Arguments::optional_tensor(std::string_view name) const {
  const c10::IValue& given = value(name);
  if (given.isNone() || !given.toTensor().defined()) return std::nullopt;
  return given.toTensor();
}

bool Arguments::flag(std::string_view name, std::size_t index) const {
  return value(name).toListRef()[index].toBool();
}

std::optional<double> Arguments::optional_number(std::string_view name) const {
  const c10::IValue& given = value(name);
  return given.isNone() ? std::nullopt : std::optional(given.toDouble());
}

Mapping mapping_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Mapping> all = [] {
    std::unordered_map<std::string_view, Mapping> table;
    for (const auto& part : {attention_mappings(), connectionist_mappings(), dropout_mappings(),
                             normalization_mappings(), recurrent_mappings(), sampling_mappings()})
      table.insert(part.begin(), part.end());
    return table;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace spillway::emulated
