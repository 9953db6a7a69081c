#include "settings.h"

#include <cstdlib>
#include <string_view>

#include "ending.h"

namespace spillway::emulated {
namespace {

/// Whether `variable` has the second of its two values; the first one holds where it is not set.
bool is_second(const char* variable, std::string_view first, std::string_view second) {
  const char* set = std::getenv(variable);
  const std::string_view value = set == nullptr ? first : set;
  if (value != first && value != second)
    end_process(std::string(variable) + "=" + std::string(value) + " is unknown; it may be " +
                std::string(first) + " or " + std::string(second));
  return value == second;
}

}  // namespace

const Settings& settings() {
  static const Settings all{.asynchronous = !is_second("EMU_OPS", "async", "sync"),
                            .draws_as_cpu = is_second("EMU_RNG", "cuda", "cpu")};
  return all;
}

}  // namespace spillway::emulated
