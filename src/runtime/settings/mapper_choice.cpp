#include "spillway/runtime/settings/mapper_choice.h"

#include "spillway/base/error.h"

namespace spillway::runtime {

memory::MapperKind choose_mapper(const std::string& requested,
                                 const std::function<std::vector<memory::MapperProbe>()>& probe) {
  if (requested != "auto") return memory::mapper_kind_from(requested);
  std::string reasons;
  for (const memory::MapperProbe& found : probe()) {
    if (found.is_viable) return found.kind;
    reasons += message("\n  {}: {}", memory::name_of(found.kind), found.reason);
  }
  throw UnsupportedError("memory cannot be paged on this system:{}", reasons);
}

}  // namespace spillway::runtime
