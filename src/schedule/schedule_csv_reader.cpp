#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "action_names.h"
#include "csv_place.h"
#include "spillway/base/error.h"
#include "spillway/base/nearest_name.h"
#include "spillway/base/shown_text.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::schedule {
namespace {

constexpr std::uint32_t kMostIndex = (1U << 24U) - 1;
constexpr std::string_view kHeader = "#spillway-schedule 1";
constexpr std::string_view kOverlap = "OVERLAP_F_B";

/// Reads one line from left to right.
class LineReader {
 public:
  LineReader(std::string_view line, CsvPlace begin) : rest_(line), place_(begin) {}

  bool is_at_end() const { return rest_.empty(); }
  const CsvPlace& place() const { return place_; }

  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    skip(expected.size());
    return true;
  }
  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) skip(1);
  }
  std::string_view take_while(bool (*belongs)(char)) {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), belongs);
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    skip(taken.size());
    return taken;
  }

  template <typename... Args>
  [[noreturn]] void fail(std::string_view pattern, const Args&... args) const {
    fail_at(place_, pattern, args...);
  }
  /// "'2X7'": what comes next, for errors.
  std::string shown_rest() const {
    const std::string_view cell = rest_.substr(0, rest_.find(','));
    return cell.empty() ? "the end of the cell" : message("'{}'", shown_text(cell));
  }

 private:
  void skip(std::size_t letters) {
    rest_.remove_prefix(letters);
    place_.column += letters;
  }

  std::string_view rest_;
  CsvPlace place_;
};

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_name(char letter) { return (letter >= 'A' && letter <= 'Z') || letter == '_'; }
bool is_key(char letter) { return (letter >= 'a' && letter <= 'z') || letter == '_'; }

std::uint32_t read_number(LineReader& line, std::string_view what) {
  const LineReader before = line;
  const std::string_view digits = line.take_while(is_digit);
  if (digits.empty()) before.fail("{} expected, not {}", what, before.shown_rest());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || number > kMostIndex)
    before.fail("{} {} is beyond {}", what, shown_text(digits), kMostIndex);
  return number;
}

ActionKind read_kind(LineReader& line) {
  const LineReader before = line;
  const std::string_view name = line.take_while(is_name);
  std::vector<std::string_view> names;
  for (const auto& each : kActionNames) {
    if (each.name == name) return each.value;
    names.push_back(each.name);
  }
  if (name.empty()) before.fail("an action expected, like 2F0, not {}", before.shown_rest());
  before.fail("unknown action '{}'{}", shown_text(name), hint_for(name, names));
}

/// "r1:2F0"
Action read_action(LineReader& line) {
  const LineReader before = line;
  Action action;
  if (line.take("r")) {
    action.replica = read_number(line, "the number of a replica");
    if (!line.take(":")) line.fail("':' expected behind a replica, not {}", line.shown_rest());
  }
  action.stage = read_number(line, "the number of a stage");
  action.kind = read_kind(line);
  const bool may_name_one = needs_micro_batch(action.kind) || action.kind == ActionKind::kStep;
  if (!line.is_at_end() && LineReader(line).take_while(is_digit).size() > 0) {
    if (!may_name_one) line.fail("{} takes no micro-batch", name_in(kActionNames, action.kind));
    action.micro_batch = read_number(line, "the number of a micro-batch");
  } else if (needs_micro_batch(action.kind)) {
    line.fail("the number of a micro-batch expected, not {}", line.shown_rest());
  }
  if (!needs_micro_batch(action.kind) && action.replica != 0)
    before.fail("an action of a whole stage belongs to no replica");
  return action;
}

/// "0UNSHARD", "0RESHARD": where the parameters of a stage are gathered from the ranks of its data
/// parallel group, and given up again. PyTorch writes them into every action list, and they do
/// something only for a stage that is sharded (FSDP).
bool take_sharding(LineReader& line) {
  LineReader ahead = line;
  if (ahead.take_while(is_digit).empty()) return false;
  const std::string_view name = ahead.take_while(is_name);
  if (name != "UNSHARD" && name != "RESHARD") return false;
  read_number(line, "the number of a stage");
  return line.take(name);
}

/// "0F1;3B0)OVERLAP_F_B", behind the bracket.
void read_pair(LineReader& line, PlacedActions& into) {
  const CsvPlace first = line.place();
  Action forward = read_action(line);
  if (forward.kind != ActionKind::kForward) line.fail("the first of two as one must be a forward");
  forward.overlaps_next = true;
  into.add(forward, first);
  if (!line.take(";")) line.fail("';' expected, not {}", line.shown_rest());
  const CsvPlace second = line.place();
  into.add(read_action(line), second);
  if (into.actions.back().kind != ActionKind::kBackward)
    line.fail("the second of two as one must be a backward");
  if (!line.take(")")) line.fail("')' expected, not {}", line.shown_rest());
  if (!line.take(kOverlap)) line.fail("{} expected, not {}", kOverlap, line.shown_rest());
}

PlacedActions read_rank(LineReader line) {
  PlacedActions list;
  const LineReader begin = line;
  bool has_cells = false;
  while (true) {
    line.skip_blanks();
    const CsvPlace place = line.place();
    if (line.take("("))
      read_pair(line, list);
    else if (!line.is_at_end() && !LineReader(line).take(",") && !take_sharding(line))
      list.add(read_action(line), place);
    line.skip_blanks();
    if (line.is_at_end()) break;
    if (!line.take(",")) line.fail("',' expected behind an action, not {}", line.shown_rest());
    has_cells = true;
  }
  if (list.actions.empty() && !has_cells)
    begin.fail("a line without actions (each is a rank, an idle one is ',')");
  return list;
}

void read_header(LineReader line, Schedule& schedule) {
  if (!line.take(kHeader)) line.fail("'{}' expected, not {}", kHeader, line.shown_rest());
  while (line.take(",")) {
    const LineReader before = line;
    const std::string_view key = line.take_while(is_key);
    if (key != "weights" && key != "data_parallel" && key != "untrained_stages")
      before.fail("unknown setting {} (known: weights data_parallel untrained_stages)",
                  before.shown_rest());
    if (!line.take("=")) line.fail("'=' expected, not {}", line.shown_rest());
    if (key == "weights") {
      const bool is_previous = line.take("previous");
      if (!is_previous && !line.take("newest"))
        line.fail("weights are newest or previous, not {}", line.shown_rest());
      schedule.weight_rule = is_previous ? WeightRule::kPrevious : WeightRule::kNewest;
    } else if (key == "untrained_stages") {
      schedule.untrained_stages = read_number(line, "the number of stages");
    } else {
      schedule.data_parallel = read_number(line, "the number of pipelines");
      if (schedule.data_parallel == 0) before.fail("there must be a pipeline at least");
    }
  }
  if (!line.is_at_end()) line.fail("the end of the line expected, not {}", line.shown_rest());
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Schedule read_schedule_csv(std::string_view text, std::string_view name) {
  Schedule schedule;
  schedule.name = name;
  std::vector<PlacedActions> ranks;
  const std::vector<std::string_view> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const LineReader line(lines[i], {name, i + 1, 1});
    if (i == 0 && lines[i].starts_with('#'))
      read_header(line, schedule);
    else
      ranks.push_back(read_rank(line));
  }
  if (ranks.empty()) throw ConfigError("{} holds no actions (each line is a rank)", name);
  complete_schedule(schedule, ranks);
  return schedule;
}

}  // namespace spillway::schedule
