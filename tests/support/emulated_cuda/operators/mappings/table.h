#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "../mapping.h"

namespace spillway::emulated {

/// Names as in aten::add.Tensor; they live as long as the process.
using Mappings = std::vector<std::pair<std::string_view, Mapping>>;

Mappings attention_mappings();
Mappings connectionist_mappings();
Mappings dropout_mappings();
Mappings normalization_mappings();
Mappings recurrent_mappings();
Mappings sampling_mappings();

}  // namespace spillway::emulated
