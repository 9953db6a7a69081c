#include "setting_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/device/device_span.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/planner/schedule/generators.h"
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

constexpr std::uint32_t kMostRanks = 65'536;

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
  if (size == Bytes(0)) throw ConfigError("'{}' is zero (write a size above it)", text);
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

bool is_device(std::string_view name) {
  if (name == "cpu" || name == "cuda") return true;
  constexpr std::string_view kNumbered = "cuda:";
  std::uint16_t index = 0;
  if (name.starts_with(kNumbered))
    std::from_chars(name.data() + kNumbered.size(), name.data() + name.size(), index);
  return name == device::to_string({device::DeviceKind::kCuda, index});
}

[[noreturn]] void refuse_missing_budget(std::string_view device) {
  throw ConfigError("{} is given no budget (write for example {}=4GiB, {}=50% or {}=auto)", device,
                    device, device, device);
}

/// "cuda:0:20MiB" is meant as "cuda:0=20MiB".
void refuse_colon(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == Text::npos || is_device(text) || !is_device(text.substr(0, colon))) return;
  throw ConfigError("'{}' has no = between the device and its budget (write {}={})", text,
                    text.substr(0, colon), text.substr(colon + 1));
}

/// "cuda=0" is no size, and perhaps meant as the number of a GPU.
void refuse_number_of_gpu(std::string_view name, std::string_view budget) {
  const bool is_number =
      budget.size() <= 2 &&
      std::all_of(budget.begin(), budget.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (name == "cuda" && is_number)
    throw ConfigError("'cuda={}' has no size (write for example cuda=4GiB for each GPU, or "
                      "cuda:{}=4GiB for that one alone)",
                      budget, budget);
}

void check_device(std::string_view name) {
  if (!is_device(name))
    throw ConfigError("'{}' is no device (write cpu, cuda:0, cuda:1 and so on, or cuda for each "
                      "GPU that is not named)",
                      name);
}

// "DEVICE=BUDGET".
void add_budget(std::string_view text, std::vector<DeviceBudget>& budgets) {
  const auto equals = text.find('=');
  if (is_device(text)) refuse_missing_budget(text);
  if (equals == Text::npos) refuse_colon(text);
  if (equals == Text::npos)
    throw ConfigError("'{}' is the budget of no device (write for example cuda=4GiB)", text);
  const std::string_view name = text.substr(0, equals);
  check_device(name);
  for (const DeviceBudget& other : budgets)
    if (other.device == name)
      throw ConfigError("{} is given a budget twice (leave one of them out)", name);
  const Text budget = text.substr(equals + 1);
  if (budget.empty()) refuse_missing_budget(name);
  refuse_number_of_gpu(name, budget);
  try {
    budgets.push_back({std::string(name), parse_budget(budget)});
  } catch (const ConfigError& error) {
    throw ConfigError("of {}: {}", name, error.what());
  }
}

// One budget for each device, or "cuda:0=20GiB,cuda=10GiB,cpu=64GiB".
void assign_budgets(Settings& settings, std::string_view text) {
  std::vector<DeviceBudget> budgets;
  BudgetRequest host;
  if (text.find('=') == Text::npos && !is_device(text)) {
    refuse_colon(text);
    host = parse_budget(text);
  } else {
    for (auto comma = text.find(','); comma != Text::npos; comma = text.find(',')) {
      add_budget(text.substr(0, comma), budgets);
      text.remove_prefix(comma + 1);
    }
    add_budget(text, budgets);
    for (const DeviceBudget& each : budgets)
      if (each.device == "cpu") host = each.request;
  }
  settings.budget = host;
  settings.device_budgets = std::move(budgets);
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

std::vector<std::string> parse_patterns(std::string_view text) {
  std::vector<std::string> patterns;
  while (true) {
    const auto comma = text.find(',');
    if (text.substr(0, comma).empty())
      throw ConfigError("a pattern is empty (write for example embedding,*norm*)");
    patterns.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return patterns;
    text.remove_prefix(comma + 1);
  }
}

std::string parse_text(std::string_view text) {
  if (text.empty()) throw ConfigError("the value is empty");
  return std::string(text);
}

constexpr std::array<Named<ProgressMode>, 3> kProgressModes{
    {{"auto", ProgressMode::kAuto}, {"on", ProgressMode::kOn}, {"off", ProgressMode::kOff}}};
constexpr std::array<Named<ChildPrograms>, 2> kChildren{
    {{"inherit", ChildPrograms::kInherit}, {"strip", ChildPrograms::kStrip}}};
constexpr std::array<Named<GradientOrder>, 2> kGradientOrders{
    {{"ordered", GradientOrder::kOrdered}, {"fast", GradientOrder::kFast}}};
constexpr std::array<Named<UpdatePlace>, 2> kUpdatePlaces{
    {{"device", UpdatePlace::kDevice}, {"host", UpdatePlace::kHost}}};
constexpr std::array<Named<device::DirectFiles>, 3> kDirectFiles{
    {{"auto", device::DirectFiles::kAuto},
     {"on", device::DirectFiles::kOn},
     {"off", device::DirectFiles::kOff}}};
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

// Each fits a screen of 24 lines.
constexpr Text kMemory = "Memory";
constexpr Text kDisks = "Disks";
constexpr Text kGpus = "GPUs";
constexpr Text kPlans = "What leaves memory, and when";
constexpr Text kProgram = "The program that runs";
constexpr Text kFiles = "Files";
constexpr Text kProfiles = "Profiles";
constexpr Text kMessages = "Messages";
constexpr Text kRanks = "One training on many ranks";
constexpr Text kRanksAndLayers = "Data, layers and checks of many ranks";

// clang-format off
constexpr std::array<SettingField, 40> kFields{{
  {{kMemory, "budget", "SIZE|PERCENT%|auto", "auto",
    "Limit on the bytes of tensors in memory at once, of the CPU and of each GPU. auto is the memory that "
    "this process can use, less --reserve (on a GPU what is free there, less 1GiB); a percentage is a share of "
    "that. cuda:0=20GiB,cuda=10GiB,cpu=64GiB limits each by itself: cuda is each GPU that is not named; "
    "devices that are left out have auto. More than a GPU has is refused where it is named, and lowered there where "
    "a plain size is for all. With --split each rank has one GPU, which is its cuda:0."},
   &assign_budgets},
  {{kDisks, "nvme", "[ram:SIZE,]DIR[:SIZE],...", "the roomiest of $TMPDIR, /var/tmp, /tmp, .",
    "Directories that tensors spill to, each with a limit on the bytes in it (of the CPU, and as much of each GPU); "
    "several are used in parallel. ram:SIZE puts a host memory tier of that size, beside the budget, before them. "
    "What leaves a GPU always goes through one of its own, pinned; without ram: it is as large as the budget of the "
    "GPU, or half of the memory that this process can use where that is less.", false, true},
   &assign_places},
  {{kMemory, "reserve", "SIZE", "512MiB or 8 %",
    "Memory that --budget auto and percentages leave for everything but tensors: libraries, "
    "their scratch space, the data loader."},
   [](Settings& s, Text t) { s.reserve = parse_bytes(t); }},
  {{kPlans, "prefetch", "on|off", "on",
    "Prefetch of tensors, in the order that was learned from earlier steps; off fetches on demand "
    "only."},
   [](Settings& s, Text t) { s.prefetch = parse_switch(t); }},
  {{kPlans, "recompute", "on|off", "on",
    "Recomputation: plans may drop tensors and rerun the operators that made them, with the same "
    "bits, where that is faster than the disk; off swaps only."},
   [](Settings& s, Text t) { s.recompute = parse_switch(t); }},
  {{kGpus, "update", {}, "device",
    "Place where optimizers update tensors of a GPU. host: by the kernels of the CPU, in host memory, so that "
    "moments need not come to the GPU, and parameters and gradients move once. That rounds differently. What the CPU "
    "has no such kernel for, and what host memory before the disks has no room for, is updated on the GPU all the "
    "same, as the run tells. Not with --split."},
   [](Settings& s, Text t) { s.update = value_named(t, kUpdatePlaces, "place"); }, &names_of<kUpdatePlaces>},
  {{kPlans, "strategy", "NAME", "spillway",
    "Strategy that decides what to swap and what to recompute: spillway, or a published one for "
    "comparison; spillway plan --help lists them."},
   [](Settings& s, Text t) { s.strategy = planner::strategy_named(t).name; }},
  {{kPlans, "plan", "FILE", "none",
    "Plan file that spillway plan wrote. The run follows it from the first step that it was made "
    "for, under its budget or a larger one, and plans other steps as usual; a plan for a GPU is followed "
    "by that GPU alone. With --split: a plan of spillway plan-job "
    "for as many ranks, which places and cuts the model from the first step on.", false, true},
   [](Settings& s, Text t) { s.plan = parse_text(t); }},
  {{kPlans, "planning", {}, "background",
    "Moment of planning: in the background while steps run, or at once while the step waits. "
    "Either way plans depend on measured times; only --plan FILE makes runs repeatable."},
   [](Settings& s, Text t) { s.planning = value_named(t, kPlanningMoments, "value"); },
   &names_of<kPlanningMoments>},
  {{kMemory, "min-storage", "SIZE", "1MiB, of a GPU 2MiB",
    "Smallest size of a tensor that has pages of its own. Smaller ones from 4KiB to 2MiB share pages on "
    "the host; all others below this size stay in memory. Pages of a GPU have twice this size, from 2MiB to 32MiB."},
   [](Settings& s, Text t) { s.min_storage = s.device_min_storage = parse_positive(t); }},
  {{kDisks, "endurance", "SIZE", "550TiB",
    "Rated endurance of each spill drive, in bytes written (TBW); the summary estimates its "
    "lifetime at the rate of this run."},
   [](Settings& s, Text t) { s.endurance = parse_positive(t); }},
  {{kMemory, "oversize-limit", "SIZE", "none",
    "Bytes that operators which need more than the budget may move to and from the disk in the "
    "whole run; then the next such operator is refused. With 0B the first one is. One alone may move "
    "8GiB, or 16 times what it needs where that is more."},
   [](Settings& s, Text t) { s.oversize_limit = parse_bytes(t); }},
  {{kDisks, "store", {}, "auto", "I/O interface that writes and reads spilled bytes."},
   [](Settings& s, Text t) { s.store = swap::store_kind_from(t); }, &store_names},
  {{kGpus, "gds", {}, "auto",
    "GPUDirect Storage: GPUs read and write their spill files themselves, by cuFile, where pages go past "
    "host memory. auto: where CUFILE_ALLOW_COMPAT_MODE=false keeps cuFile from copies by way of host memory, and "
    "without --verify. on: also where it may do so, or the run ends with the reason; not with --verify."},
   [](Settings& s, Text t) { s.gds = value_named(t, kDirectFiles, "value"); }, &names_of<kDirectFiles>},
  {{kDisks, "queue-depth", "COUNT", "16", "Transfers of 2 MiB in flight at once in each directory."},
   [](Settings& s, Text t) { s.queue_depth = parse_count(t, 1, 1024); }},
  {{kProgram, "verify", "on|off", "off",
    "Verification: checksums of all bytes that are read back from disk, and a bitwise comparison "
    "of a second run of each kind of call that plans may rerun.", true},
   [](Settings& s, Text t) { s.verify = parse_switch(t); }},
  {{kProgram, "mapper", {}, "auto",
    "Mechanism that detects accesses to spilled memory; spillway doctor shows which ones work "
    "here. copy works everywhere, slowly."},
   [](Settings& s, Text t) { s.mapper = value_named(t, mapper_choices(), "mapper"); },
   &mapper_names},
  {{kProgram, "dispatch-key", "auto|NAME|record-function", "auto",
    "Dispatch key of LibTorch at which operators are intercepted."},
   [](Settings& s, Text t) { s.dispatch_key = parse_text(t); }},
  {{kFiles, "stats", "FILE", "none",
    "File for statistics, as JSON, written at exit; %p becomes the process id, %r the rank. With "
    "--split and neither, the first rank writes it, with figures of all; other ranks of a launcher "
    "put their number before the suffix.", false, true},
   [](Settings& s, Text t) { s.stats = parse_text(t); }},
  {{kFiles, "trace", "FILE", "none",
    "File for a Chrome trace of the latest whole steps, written at exit, with the lanes of spillway "
    "simulate --trace, and all GPUs beside the CPU; %p and %r as in --stats. With "
    "--split and neither, the first rank writes one for all, with arrows for messages.", false, true},
   [](Settings& s, Text t) { s.trace = parse_text(t); }},
  {{kFiles, "trace-steps", "COUNT", "3", "Number of steps in the file of --trace."},
   [](Settings& s, Text t) { s.trace_steps = parse_trace_steps(t); }},
  {{kProfiles, "profile-out", "FILE", "none",
    "File for a profile of the most frequent kind of step, written at exit, as by spillway profile "
    "--out; %p and %r as in --stats. Where the program uses GPUs it is of the first one; with %d, which "
    "becomes cuda:0 and so on, each has one, and the CPU (cpu) if it has steps of its own.", false, true},
   [](Settings& s, Text t) { s.profile_out = parse_text(t); }},
  {{kProfiles, "profile-steps", "COUNT", "0",
    "Repetitions of one kind of step after which the program is ended; 0: it runs to its end."},
   [](Settings& s, Text t) { s.profile_steps = parse_profile_steps(t); }},
  {{kProfiles, "profile-kind", "COUNT", "1",
    "Kind of step to profile, by frequency: 1 is the most frequent one. Steps of other shapes, and "
    "steps with a validation after them, are kinds of their own."},
   [](Settings& s, Text t) { s.profile_kind = parse_count(t, 1, ProfileRecording::kMostKinds); }},
  {{kDisks, "rates", "FILE", "~/.config/spillway/disks.json",
    "File of disk bandwidths that spillway bench-io measured. A file named here must exist.", false,
    true},
   [](Settings& s, Text t) { s.rates = parse_text(t); }},
  {{kFiles, "config", "FILE", "none",
    "File of lines `key = value` with the names of these options. Relative paths in it start in "
    "the current folder.",
    false, true},
   [](Settings& s, Text t) { s.config = parse_text(t); }},
  {{kMessages, "quiet", "on|off", "off", "Silence: no progress line and no summary; errors are still printed.", true},
   [](Settings& s, Text t) { s.quiet = parse_switch(t); }},
  {{kMessages, "progress", {}, "auto", "Progress line; auto shows it where stderr is a terminal."},
   [](Settings& s, Text t) { s.progress = value_named(t, kProgressModes, "value"); },
   &names_of<kProgressModes>},
  {{kMessages, "log-level", {}, "warning", "Least severe messages that are printed."},
   [](Settings& s, Text t) { s.log_level = value_named(t, kLogLevels, "level"); },
   &names_of<kLogLevels>},
  {{kProgram, "children", {}, "inherit",
    "Programs that the trainer starts: inherit runs them under Spillway too, strip without it."},
   [](Settings& s, Text t) { s.children = value_named(t, kChildren, "value"); },
   &names_of<kChildren>},
  {{kRanks, "split", "on|off", "off",
    "One training on all ranks of the job that mpiexec or srun has started: each holds and computes "
    "its part, with the bits of one process. All ranks need the same data; "
    "PYTHONHASHSEED is 0 where it is not set. SIGUSR2 has a rank tell what it does and waits "
    "for (Open MPI's launcher hands it on to all). Off: each rank trains for itself.", true},
   [](Settings& s, Text t) { s.split = parse_switch(t); }},
  {{kRanks, "stages", "COUNT|auto", "auto",
    "With --split: parts into which the model is cut; auto takes as many as ranks and schedule "
    "allow."},
   [](Settings& s, Text t) { s.stages = t == "auto" ? 0 : parse_count(t, 1, kMostRanks); }},
  {{kRanks, "replicas", "COUNT", "1",
    "With --split: pipelines beside each other, to which the micro-batches of the program go by "
    "turns."},
   [](Settings& s, Text t) { s.replicas = parse_count(t, 1, kMostRanks); }},
  {{kRanksAndLayers, "shards", "COUNT", "1",
    "With --split: programs with data of their own, each split over as many of the ranks, which train "
    "on the mean of their gradients. {shard} and {shards} in the program's arguments become its number and "
    "their count, as do SPILLWAY_SHARD and SPILLWAY_SHARDS."},
   [](Settings& s, Text t) { s.shards = parse_count(t, 1, kMostRanks); }},
  {{kRanksAndLayers, "gradients", {}, "ordered",
    "With --shards: ordered adds in the order of the shards (the bits of one process that does), fast in that "
    "of a ring or tree, which sends fewer bytes. Both are the same on every run."},
   [](Settings& s, Text t) { s.gradients = value_named(t, kGradientOrders, "value"); },
   &names_of<kGradientOrders>},
  {{kRanks, "schedule", "NAME", "1f1b",
    "With --split: schedule whose placement of stages and order of micro-batches ranks keep to, of "
    "those that spillway plan-job --help lists."},
   [](Settings& s, Text t) { s.schedule = planner_schedule::schedule_generator_named(t).name; }},
  {{kRanks, "window", "COUNT|auto", "auto",
    "With --split: micro-batches that a rank works on at once, which bounds the activations it "
    "keeps; auto is what the schedule does. With a number, their order is not the schedule's."},
   [](Settings& s, Text t) { s.window = t == "auto" ? 0 : parse_count(t, 1, 1'000'000); }},
  {{kRanksAndLayers, "replicate", "PATTERN[,PATTERN...]", "none",
    "With --split: operators, as embedding or *norm*, whose parameters all ranks keep and update, in place "
    "of the rank of their stage: for small ones that several stages or copies of stages use. No bits change."},
   [](Settings& s, Text t) { s.replicate = parse_patterns(t); }},
  {{kRanksAndLayers, "rebalance", "on|off", "on",
    "With --split: layers move between ranks, while training goes on, where measured times show "
    "that stages are uneven or that a rank has become slow. No bits change."},
   [](Settings& s, Text t) { s.rebalance = parse_switch(t); }},
  {{kRanksAndLayers, "check-control", "on|off", "on",
    "With --split: ranks compare the calls of their programs, and the job ends where they differ."},
   [](Settings& s, Text t) { s.check_control = parse_switch(t); }},
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
