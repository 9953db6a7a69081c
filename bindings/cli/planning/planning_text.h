#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway::cli {

/// "1.20"; "-" for what cannot be told.
std::string ratio_text(double value, double of);

/// Columns under their titles, two blanks apart. All but the first stand at the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace spillway::cli
