#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Where something stands in a CSV text; counted from 1.
struct CsvPlace {
  std::string_view name;
  std::size_t line = 1;
  std::size_t column = 1;
};

template <typename... Args>
[[noreturn]] void fail_at(const CsvPlace& place, std::string_view pattern, const Args&... args) {
  throw ConfigError("{}, line {}, column {}: {}", place.name, place.line, place.column,
                    message(pattern, args...));
}

/// One rank's action list with the place of each action.
struct PlacedActions {
  void add(const Action& action, const CsvPlace& place) {
    actions.push_back(action);
    places.push_back(place);
  }

  std::vector<Action> actions;
  std::vector<CsvPlace> places;
};

/// Finds out what the action lists of a schedule with a name are of: stages, replicas,
/// micro-batches, and where they are placed. An action that fits to no forward is refused at its
/// place.
void complete_schedule(Schedule& schedule, std::vector<PlacedActions>& ranks);

}  // namespace spillway::schedule
