#include "setting_fields.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/runtime/recording/profile_recording.h"

namespace spillway::runtime {
namespace {

using Text = std::string_view;

constexpr std::array<Named<bool>, 8> kSwitch{{{"on", true},
                                              {"off", false},
                                              {"true", true},
                                              {"false", false},
                                              {"yes", true},
                                              {"no", false},
                                              {"1", true},
                                              {"0", false}}};

bool parse_switch(std::string_view text) { return value_named(text, kSwitch, "value"); }

std::uint32_t parse_count(std::string_view text, std::uint32_t least, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw ConfigError("'{}' is not a whole number from {} to {}", text, least, most);
  return value;
}

std::uint32_t parse_trace_steps(std::string_view text) { return parse_count(text, 1, 10'000); }

std::uint32_t parse_profile_steps(std::string_view text) {
  // A single step shows nothing that repeats.
  return text == "0" ? 0 : parse_count(text, 2, 1'000'000);
}

Bytes parse_positive(std::string_view text) {
  const Bytes size = parse_bytes(text);
  if (size == Bytes(0)) throw ConfigError("'{}' is zero (write for example 4GiB)", text);
  return size;
}

BudgetRequest parse_budget(std::string_view text) {
  BudgetRequest request;
  if (text == "auto") return request;
  if (text.empty() || !(text.front() == '.' || (text.front() >= '0' && text.front() <= '9')))
    throw ConfigError("'{}' is no budget (write for example 4GiB, 50% or auto)", text);
  if (text.back() != '%') {
    request.kind = BudgetRequest::Kind::kSize;
    request.size = parse_positive(text);
    return request;
  }
  request.kind = BudgetRequest::Kind::kPercent;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, status] = std::from_chars(text.data(), end, request.percent);
  if (status != std::errc() || stop != end || !(request.percent > 0.0 && request.percent <= 100.0))
    throw ConfigError("'{}' is not a percentage above 0% and up to 100%", text);
  return request;
}

// "DIR" or "DIR:SIZE". A colon belongs to the directory's name unless a digit follows it, and no
// further folder.
swap::SpillDirectory parse_directory(std::string_view text) {
  swap::SpillDirectory directory;
  const auto colon = text.rfind(':');
  const auto after = colon == std::string_view::npos ? Text() : text.substr(colon + 1);
  if (!after.empty() && after.front() >= '0' && after.front() <= '9' &&
      after.find('/') == Text::npos) {
    directory.limit = parse_positive(after);
    text = text.substr(0, colon);
  }
  if (text.empty()) throw ConfigError("a directory without a name");
  directory.path = text;
  return directory;
}

// What follows "ram:".
Bytes parse_host_memory(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9')
    throw ConfigError("{}{} names host memory without a size (write for example {}8GiB, or "
                      "./{}{} for a directory of that name)",
                      kHostMemory, text, kHostMemory, kHostMemory, text);
  const Bytes size = parse_positive(text);
  if (size < memory::kPageSize)
    throw ConfigError("{}{} of host memory hold no page of {} (write for example {}8GiB)",
                      kHostMemory, text, memory::kPageSize, kHostMemory);
  return size;
}

void add_directory(std::string_view text, std::vector<swap::SpillDirectory>& directories) {
  swap::SpillDirectory directory = parse_directory(text);
  for (const swap::SpillDirectory& other : directories)
    if (other.path == directory.path)
      throw ConfigError("directory {} is named twice", directory.path);
  directories.push_back(std::move(directory));
}

void assign_places(Settings& settings, std::string_view text) {
  std::vector<swap::SpillDirectory> directories;
  Bytes host_tier;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    if (!entry.starts_with(kHostMemory)) {
      add_directory(entry, directories);
    } else {
      const Bytes size = parse_host_memory(entry.substr(kHostMemory.size()));
      if (host_tier > Bytes())
        throw ConfigError("host memory is named twice, with {} and {} (write one {}SIZE)",
                          host_tier, size, kHostMemory);
      host_tier = size;
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  settings.nvme = std::move(directories);
  settings.host_tier = host_tier;
}

std::string parse_text(std::string_view text) {
  if (text.empty()) throw ConfigError("the value is empty");
  return std::string(text);
}

constexpr std::array<Named<ProgressMode>, 3> kProgressModes{
    {{"auto", ProgressMode::kAuto}, {"on", ProgressMode::kOn}, {"off", ProgressMode::kOff}}};
constexpr std::array<Named<ChildPrograms>, 2> kChildren{
    {{"inherit", ChildPrograms::kInherit}, {"strip", ChildPrograms::kStrip}}};
constexpr std::array<Named<PlanningMoment>, 2> kPlanningMoments{
    {{"background", PlanningMoment::kInBackground}, {"at-once", PlanningMoment::kAtOnce}}};
constexpr std::array<Named<LogLevel>, 5> kLogLevels{{{"debug", LogLevel::kDebug},
                                                     {"info", LogLevel::kInfo},
                                                     {"warning", LogLevel::kWarning},
                                                     {"error", LogLevel::kError},
                                                     {"off", LogLevel::kOff}}};

// The mappers by name, and the choice among them.
const std::vector<Named<std::string_view>>& mapper_choices() {
  static const std::vector<Named<std::string_view>> choices = [] {
    std::vector<Named<std::string_view>> all{{"auto", "auto"}};
    for (const auto& kind : memory::mapper_kinds()) all.push_back({kind.name, kind.name});
    return all;
  }();
  return choices;
}

template <const auto& kList>
std::string_view names_of() {
  static const std::string text = alternatives(kList);
  return text;
}

std::string_view store_names() {
  static const std::string text = alternatives(swap::store_kinds());
  return text;
}

std::string_view mapper_names() {
  static const std::string text = alternatives(mapper_choices());
  return text;
}

// clang-format off
constexpr std::array<SettingField, 27> kFields{{
  {{"budget", "SIZE|PERCENT%|auto", "auto",
    "Tensor bytes that may be in memory at once. auto: what this process can really use, less "
    "--reserve; a percentage is of that."},
   [](Settings& s, Text t) { s.budget = parse_budget(t); }},
  {{"nvme", "[ram:SIZE,]DIR[:SIZE],...", "the roomiest of $TMPDIR, /var/tmp, /tmp, .",
    "Where tensors spill to, and how much may be filled there. Several directories work in "
    "parallel. ram:SIZE puts so much memory, beside the budget, before them.", false, true},
   &assign_places},
  {{"reserve", "SIZE", "512MiB or 8 %",
    "What --budget auto and percentages leave for memory that tensors do not count: libraries, "
    "their scratch space, the loader."},
   [](Settings& s, Text t) { s.reserve = parse_bytes(t); }},
  {{"prefetch", "on|off", "on",
    "Learn the step and bring tensors back before they are needed; off fetches on demand only."},
   [](Settings& s, Text t) { s.prefetch = parse_switch(t); }},
  {{"recompute", "on|off", "on",
    "Let plans drop tensors and run the operators that made them again, bit for bit, where that "
    "is faster than the disk; off only moves them."},
   [](Settings& s, Text t) { s.recompute = parse_switch(t); }},
  {{"strategy", "NAME", "spillway",
    "Who decides what to move and what to compute again: ours, or a published way of doing it, to "
    "compare; spillway plan --help lists them."},
   [](Settings& s, Text t) { s.strategy = planner::strategy_named(t).name; }},
  {{"plan", "FILE", "none",
    "A plan that spillway plan has written, for the step that it was made for: it is followed from "
    "the first such step on, within the budget that it was made for or a larger one; other steps "
    "are planned as usual.", false, true},
   [](Settings& s, Text t) { s.plan = parse_text(t); }},
  {{"planning", {}, "background",
    "When plans are made: in the background while steps go on, or at once while the step waits. "
    "Plans follow the measured times of operators either way: equal runs go equal ways with --plan "
    "only."},
   [](Settings& s, Text t) { s.planning = value_named(t, kPlanningMoments, "value"); },
   &names_of<kPlanningMoments>},
  {{"min-storage", "SIZE", "1MiB", "Size from which a tensor has pages of its own; smaller ones share pages."},
   [](Settings& s, Text t) { s.min_storage = parse_positive(t); }},
  {{"endurance", "SIZE", "600TB",
    "What each spill drive is rated to take in its life (TBW); the summary tells how long it lasts "
    "at this pace."},
   [](Settings& s, Text t) { s.endurance = parse_positive(t); }},
  {{"store", {}, "auto", "How spilled bytes are written and read."},
   [](Settings& s, Text t) { s.store = swap::store_kind_from(t); }, &store_names},
  {{"queue-depth", "COUNT", "16", "Transfers of 2 MiB under way at once in each directory."},
   [](Settings& s, Text t) { s.queue_depth = parse_count(t, 1, 1024); }},
  {{"verify", "on|off", "off",
    "Check a checksum of everything that comes back from disk, and that operators that run again "
    "give the same bits.", true},
   [](Settings& s, Text t) { s.verify = parse_switch(t); }},
  {{"mapper", {}, "auto",
    "How accesses to spilled memory are noticed; spillway doctor shows what works here. "
    "copy works everywhere, slowly."},
   [](Settings& s, Text t) { s.mapper = value_named(t, mapper_choices(), "mapper"); },
   &mapper_names},
  {{"dispatch-key", "auto|NAME|record-function", "auto",
    "Where operators are intercepted in LibTorch."},
   [](Settings& s, Text t) { s.dispatch_key = parse_text(t); }},
  {{"stats", "FILE", "none",
    "Write statistics as JSON at exit; %p becomes the process id, %r the rank.", false, true},
   [](Settings& s, Text t) { s.stats = parse_text(t); }},
  {{"trace", "FILE", "none",
    "Write the latest whole steps at exit as they went, as a Chrome trace with the lanes of spillway "
    "simulate --trace; %p and %r as above.", false, true},
   [](Settings& s, Text t) { s.trace = parse_text(t); }},
  {{"trace-steps", "COUNT", "3", "How many steps --trace shows."},
   [](Settings& s, Text t) { s.trace_steps = parse_trace_steps(t); }},
  {{"profile-out", "FILE", "none",
    "Write the profile of a step at exit, of the most frequent kind of step, as spillway profile --out does; %p and %r "
    "as above.", false, true},
   [](Settings& s, Text t) { s.profile_out = parse_text(t); }},
  {{"profile-steps", "COUNT", "0",
    "End the program once the profile has a step that came so often; 0: let it run to its end."},
   [](Settings& s, Text t) { s.profile_steps = parse_profile_steps(t); }},
  {{"profile-kind", "COUNT", "1",
    "Which kind of step the profile is of, where a trainer has several (other shapes, or a validation "
    "behind some steps, which belongs to them): 1 is the one that comes most often, 2 the next."},
   [](Settings& s, Text t) { s.profile_kind = parse_count(t, 1, ProfileRecording::kMostKinds); }},
  {{"rates", "FILE", "~/.config/spillway/disks.json",
    "Disk rates that spillway bench-io has measured. A file named here must be there.", false,
    true},
   [](Settings& s, Text t) { s.rates = parse_text(t); }},
  {{"config", "FILE", "none",
    "Lines `key = value` with these same names. Relative paths in it start in the current folder.",
    false, true},
   [](Settings& s, Text t) { s.config = parse_text(t); }},
  {{"quiet", "on|off", "off", "No progress line, no summary; errors are still printed.", true},
   [](Settings& s, Text t) { s.quiet = parse_switch(t); }},
  {{"progress", {}, "auto", "One progress line; auto: when stderr is a terminal."},
   [](Settings& s, Text t) { s.progress = value_named(t, kProgressModes, "value"); },
   &names_of<kProgressModes>},
  {{"log-level", {}, "warning", "Which messages are printed."},
   [](Settings& s, Text t) { s.log_level = value_named(t, kLogLevels, "level"); },
   &names_of<kLogLevels>},
  {{"children", {}, "inherit",
    "Whether programs that the trainer starts run under Spillway too."},
   [](Settings& s, Text t) { s.children = value_named(t, kChildren, "value"); },
   &names_of<kChildren>},
}};
// clang-format on

}  // namespace

std::span<const SettingField> setting_fields() {
  static const std::vector<SettingField> fields = [] {
    std::vector<SettingField> all(kFields.begin(), kFields.end());
    for (SettingField& field : all)
      if (field.alternatives != nullptr) field.info.value = field.alternatives();
    return all;
  }();
  return fields;
}

}  // namespace spillway::runtime
