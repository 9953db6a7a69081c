#include "spillway/schedule/schedule_drawing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/schedule/stage_turns.h"

namespace spillway::schedule {
namespace {

constexpr double kMostCells = 1e6;
constexpr std::uint32_t kLetters = 26;

char letter_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return 'F';
    case ActionKind::kBackward: return 'B';
    case ActionKind::kInputGradient: return 'I';
    case ActionKind::kWeightGradient: return 'W';
    case ActionKind::kRecompute: return 'R';
    default: return 'S';
  }
}

std::string label_of(const Schedule& schedule, const Action& action, std::uint32_t turn) {
  std::string label(1, letter_of(action.kind));
  if (action.kind == ActionKind::kStep) return label + std::to_string(action.stage);
  label += micro_batch_label(schedule, action);
  const std::uint32_t turns = (schedule.stages + schedule.rank_count() - 1) / schedule.rank_count();
  if (turns == 2 && turn == 1) label[0] = static_cast<char>(label[0] - 'A' + 'a');
  if (turns > 2) label += message(".{}", turn);
  return label;
}

}  // namespace

std::string micro_batch_label(const Schedule& schedule, const Action& action) {
  const std::uint32_t i = action.micro_batch;
  if (schedule.replica_count() == 1) return std::to_string(i);
  const std::string replica = std::to_string(action.replica);
  if (schedule.micro_batches == 1) return replica;
  return replica + (i < kLetters ? std::string(1, static_cast<char>('a' + i)) : message("/{}", i));
}

std::string drawing(const Schedule& schedule, const std::vector<std::vector<ActionSpan>>& spans,
                    double seconds, double seconds_per_column) {
  if (!(seconds_per_column > 0.0))
    throw ConfigError("a column cannot last {} s (give more than 0)", seconds_per_column);
  const double width = std::round(seconds / seconds_per_column);
  if (!(width * static_cast<double>(schedule.ranks.size()) <= kMostCells))
    throw ConfigError("a drawing of {} columns is too wide (give more seconds per column)", width);
  const auto columns = static_cast<std::size_t>(width);
  const auto turns = turns_of(schedule);
  std::vector<std::vector<std::string>> rows(schedule.ranks.size());
  std::size_t letters = 1;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].resize(columns);
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      if (!is_compute(action.kind)) continue;
      const ActionSpan& span = spans[rank][i];
      const auto column_at = [&](double moment) {
        return static_cast<std::size_t>(std::llround(moment / seconds_per_column));
      };
      const std::string label = label_of(schedule, action, turns[action.replica][action.stage]);
      for (std::size_t at = column_at(span.start_seconds);
           at < std::min(column_at(span.end_seconds), columns); ++at) {
        rows[rank][at] = label;
        letters = std::max(letters, label.size());
      }
    }
  }
  const std::size_t digits = std::to_string(rows.size() - 1).size();
  std::string text;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::string number = std::to_string(rank);
    text.append("r").append(number).append(":").append(digits - number.size(), ' ');
    for (const std::string& cell : rows[rank]) {
      const std::string shown = cell.empty() ? std::string(letters, '.') : cell;
      text.append(" ").append(shown).append(letters - shown.size(), ' ');
    }
    while (text.ends_with(' ')) text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace spillway::schedule
