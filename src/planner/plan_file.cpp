#include "spillway/planner/plan_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/json_writer.h"
#include "spillway/base/mix.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::planner {

using profile::StepTape;

namespace {

using nlohmann::json;

constexpr std::uint64_t kVersion = 2;
constexpr std::uint64_t kVersionOfOneTier = 1;  // Older readers know it, and need no more.
constexpr std::int64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMost64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kMostPageBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMostLetters = 100;
constexpr double kMostSeconds = 1e12;

/// Of the document without its checksum, in one line with sorted keys.
/// So a file that was only indented anew, or written with its keys in another order, is still the
/// same plan.
std::string checksum_of(const std::string& text) {
  std::uint64_t hash = text.size();
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  return hexadecimal_text(hash);
}

// No operator: -1.
std::int64_t or_minus_one(std::uint32_t index) {
  return index == std::numeric_limits<std::uint32_t>::max() ? -1 : std::int64_t{index};
}

/// One list of the file per field of a swap.
struct SwapColumn {
  const char* key;
  std::uint32_t PlannedSwap::*field;
  bool may_be_none;
};
constexpr std::array<SwapColumn, 9> kSwapColumns{
    {{"value", &PlannedSwap::value, false},
     {"fetch_value", &PlannedSwap::fetch_value, true},
     {"needed_value", &PlannedSwap::needed_value, true},
     {"pages", &PlannedSwap::pages, false},
     {"leave", &PlannedSwap::leave, false},
     {"fetch", &PlannedSwap::fetch, true},
     {"needed", &PlannedSwap::needed, true},
     {"last_touch", &PlannedSwap::last_touch, false},
     {"out_ops", &PlannedSwap::out_ops, false}}};

/// Each kind of operator once, and the number of each operator's kind.
// A step has thousands of operators of some dozens of kinds.
json operators_json(const PlanFile& file) {
  std::map<std::pair<std::string, std::string>, std::size_t> numbers;
  json operators = {{"program", file.program},
                    {"name", json::array()},
                    {"arguments", json::array()},
                    {"kind", json::array()}};
  for (const profile::OpKind& op : file.ops) {
    const auto [entry, is_new] = numbers.try_emplace({op.name, op.arguments}, numbers.size());
    if (is_new) {
      operators["name"].push_back(op.name);
      operators["arguments"].push_back(op.arguments);
    }
    operators["kind"].push_back(entry->second);
  }
  return operators;
}

json swaps_json(const SwapChoices& choices, bool has_far) {
  json swaps = json::object();
  for (const SwapColumn& column : kSwapColumns) {
    json& list = swaps[column.key] = json::array();
    for (const PlannedSwap& swap : choices.swaps) list.push_back(or_minus_one(swap.*column.field));
  }
  json& keeps = swaps["keeps_copy"] = json::array();
  for (const PlannedSwap& swap : choices.swaps) keeps.push_back(swap.keeps_copy ? 1 : 0);
  if (has_far) {
    json& far = swaps["far_pages"] = json::array();
    for (const PlannedSwap& swap : choices.swaps) far.push_back(swap.far_pages);
  }
  swaps["write_outs"] = choices.write_outs;
  swaps["fetches"] = choices.fetches;
  swaps["reserve_pages"] = choices.reserve_pages;
  swaps["use_distance"] = choices.use_distance;
  swaps["birth_distance"] = choices.birth_distance;
  return swaps;
}

/// Reads one file; every error names it and the place.
class PlanReader {
 public:
  PlanReader(std::string_view text, const std::string& name)
      : name_(name), text_(text, name, JsonText::kAnyFormat), root_(text_.root()) {}

  PlanFile read() {
    read_head();
    file_.strategy = root_.text("strategy");
    if (file_.strategy.size() > kMostLetters)
      refuse("the name of its strategy has {} letters", file_.strategy.size());
    if (root_.has("device")) file_.device = root_.text("device");
    if (file_.device.size() > kMostLetters)
      refuse("the name of its device has {} letters", file_.device.size());
    JsonObject step = root_.object("step");
    file_.step = {step.count("operators", 1, kMost32), step.count("values", 0, kMost32),
                  step.hexadecimal("operator_hash"), step.hexadecimal("value_hash")};
    if (root_.has("operators")) read_operators(root_.object("operators"));
    read_limits();
    JsonObject replays = root_.object("replays");
    const auto last = static_cast<std::int64_t>(file_.step.operators) - 1;
    const auto before = replays.counts<OpIndex>("before", JsonObject::kAnySize, 0, last);
    const auto op = replays.counts<OpIndex>("op", before.size(), 0, last);
    for (std::size_t i = 0; i < op.size(); ++i) file_.replays.push_back({before[i], op[i]});
    read_swaps(root_.object("swaps"));
    file_.swaps.filled_share = root_.number("filled_share", 0.0, 1.0);
    JsonObject figures = root_.object("figures");
    file_.figures = {figures.number("step_seconds", 0.0, kMostSeconds),
                     figures.number("bound_seconds", 0.0, kMostSeconds),
                     Bytes(figures.count("peak_bytes", 0, kMost64))};
    return std::move(file_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("{}: {}", name_, message(pattern, args...));
  }

  void read_head() {
    root_.require_format(kPlanFormat);
    // Before the checksum, which a newer format may take otherwise: the message would be that
    // somebody changed the file.
    version_ = root_.count("version", 1, kMost64);
    if (version_ > kVersion)
      refuse("version {} of the format is newer than this Spillway, which reads {} (make the plan "
             "again, or use a newer Spillway)",
             version_, kVersion);
    if (root_.text("checksum") != checksum_of(root_.compact_without("checksum")))
      refuse("the plan was changed after it was written (make it again with: spillway plan)");
  }

  void read_operators(JsonObject operators) {
    constexpr std::size_t kAny = JsonObject::kAnySize;
    file_.program = operators.text("program");
    const auto names = operators.texts("name", kAny);
    const auto arguments = operators.texts("arguments", names.size());
    const auto last = static_cast<std::int64_t>(names.size()) - 1;
    for (const auto kind : operators.counts<std::uint32_t>("kind", file_.step.operators, 0,
                                                           std::max<std::int64_t>(last, 0))) {
      if (kind >= names.size()) refuse("its operators have kinds without a name");
      file_.ops.push_back({names[kind], arguments[kind]});
    }
  }

  void read_limits() {
    file_.page_size = Bytes(root_.count("page_bytes", 1, kMostPageBytes));
    file_.budget = Bytes(root_.count("budget_bytes", 1, kMost64));
    file_.small_bytes = Bytes(root_.count("small_bytes", 0, kMost64));
    // Before pages are counted: a difference of sizes has no sign.
    if (file_.small_bytes >= file_.budget ||
        (file_.budget - file_.small_bytes) / file_.page_size == 0)
      refuse("its budget of {} holds no page beside the {} that never leave", file_.budget,
             file_.small_bytes);
    JsonObject rates = root_.object("rates");
    file_.rates = profile::rates_in(rates);
    if (version_ == kVersionOfOneTier) return;
    JsonObject far = root_.object("far");
    file_.far = {profile::rates_in(far),
                 static_cast<std::uint32_t>(far.count("near_pages", 0, kMost32))};
  }

  void read_far_pages(JsonObject& swaps) {
    std::vector<PlannedSwap>& all = file_.swaps.swaps;
    const auto pages = swaps.counts<std::uint32_t>("far_pages", all.size(), 0, kMost32 - 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].far_pages = pages[i];
      if (pages[i] > all[i].pages)
        throw ConfigError("{}[{}] is {}, more than the {} of that swap", swaps.place("far_pages"),
                          i, pages[i], counted(all[i].pages, "page"));
    }
  }

  void read_swaps(JsonObject swaps) {
    constexpr std::size_t kAny = JsonObject::kAnySize;
    SwapChoices& choices = file_.swaps;
    std::size_t size = kAny;
    for (const SwapColumn& column : kSwapColumns) {
      const std::int64_t least = column.may_be_none ? -1 : 0;
      const auto list = swaps.counts<std::uint32_t>(column.key, size, least, kMost32 - 1);
      // The first column tells how many swaps there are; the others must have as many.
      choices.swaps.resize(size = list.size());
      for (std::size_t i = 0; i < size; ++i) choices.swaps[i].*column.field = list[i];
    }
    // Numbers like all other columns, so that tools read each of them as one array.
    const auto keeps = swaps.counts<std::uint8_t>("keeps_copy", size, 0, 1);
    for (std::size_t i = 0; i < size; ++i) choices.swaps[i].keeps_copy = keeps[i] != 0;
    if (file_.far) read_far_pages(swaps);
    // Without swaps there is no number that these lists could name.
    const std::size_t any = size == 0 ? 0 : kAny;
    const auto last = static_cast<std::int64_t>(size) - 1;
    choices.write_outs = swaps.counts<std::uint32_t>("write_outs", any, 0, last);
    choices.fetches = swaps.counts<std::uint32_t>("fetches", any, 0, last);
    choices.reserve_pages = swaps.counts<std::uint32_t>("reserve_pages", kAny, 0, kMost32 - 1);
    choices.use_distance = swaps.counts<std::uint32_t>("use_distance", kAny, 0, kMost32);
    choices.birth_distance = swaps.counts<std::uint32_t>("birth_distance", kAny, 0, kMost32);
  }

  const std::string& name_;
  const JsonText text_;
  JsonObject root_;
  std::uint64_t version_ = 0;
  PlanFile file_;
};

std::string text_of(const profile::OpKind& kind) {
  constexpr std::size_t kMostLettersShown = 160;
  return shown_text(message("{}({})", kind.name, kind.arguments), kMostLettersShown);
}

}  // namespace

StepIdentity identity_of(const StepTape& tape) {
  StepIdentity identity;
  identity.operators = tape.ops.size();
  identity.values = tape.values.size();
  // Times are left out: a plan made on one machine is for the same program on another.
  identity.operator_hash = profile::OpSequence(tape.ops).identity();
  for (const profile::TapeValue& value : tape.values)
    for (const std::uint32_t part : {value.pages, value.birth, value.death, value.becomes})
      identity.value_hash = mix(identity.value_hash, part);
  return identity;
}

SwapLimits PlanFile::limits() const {
  SwapLimits limits;
  // Readers refuse a budget that is not larger.
  const std::uint64_t pages = (budget - small_bytes) / page_size;
  limits.budget_pages = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(pages, std::numeric_limits<std::uint32_t>::max()));
  limits.page_size = page_size;
  limits.rates = rates;
  limits.far = far;
  return limits;
}

PlanFile describe_plan(const StepPlan& plan, const StepBound& bound, const StepTape& tape,
                       const SwapLimits& limits, Bytes budget, Bytes small_bytes) {
  PlanFile file;
  file.strategy = plan.strategy;
  file.step = identity_of(tape);
  file.page_size = limits.page_size;
  file.budget = budget;
  file.small_bytes = small_bytes;
  file.rates = limits.rates;
  file.far = limits.far;
  file.replays = plan.replays;
  file.swaps = choices_of(plan.steps.tape, plan.swaps);
  const StepEstimate& estimate = plan.swaps.estimate;
  file.figures = {estimate.step_seconds, bound.step_seconds,
                  estimate.peak_pages * limits.page_size + small_bytes};
  return file;
}

PlanFile describe_plan(const StepPlan& plan, const StepBound& bound,
                       const profile::StepProfile& profile, const SwapLimits& limits,
                       Bytes budget) {
  PlanFile file = describe_plan(plan, bound, profile.tape, limits, budget, profile.small_bytes);
  file.program = profile.origin.program;
  file.device = profile.origin.device;
  for (const std::uint32_t kind : profile.kind_of_op) file.ops.push_back(profile.kinds[kind]);
  return file;
}

std::string text_of_other_step(const PlanFile& file, const std::string& name, std::uint64_t ops,
                               const OpKindOf& kind_of) {
  std::string text = message("{}: the plan is for another program or other shapes, a step of {}{} "
                             "operators and not these {}",
                             name, file.program.empty() ? "" : shown_text(file.program) + " with ",
                             file.step.operators, ops);
  // Names help most where two programs are nearly alike: the first operator that differs is the one
  // to look at.
  const std::size_t both = kind_of ? std::min<std::size_t>(ops, file.ops.size()) : 0;
  for (std::size_t op = 0; op < both; ++op) {
    const profile::OpKind here = kind_of(static_cast<OpIndex>(op));
    const profile::OpKind& there = file.ops[op];
    if (here == there) continue;
    return text + message("; operator {} is {} in the plan and {} here", op, text_of(there),
                          text_of(here));
  }
  if (both == 0) return text;
  return text + (ops == file.step.operators
                     ? ", of the same names and arguments but with other tensors"
                     : message("; the first {} are the same", both));
}

StepPlan fit_plan(const PlanFile& file, const std::string& name, const StepTape& tape,
                  Bytes page_size, const SwapLimits& limits, const OpKindOf& kind_of) {
  // First, because in other pages all sizes differ: the message would be about other tensors.
  if (page_size != file.page_size)
    throw PlanError(
        "{}: the plan counts pages of {}, the step has pages of {} (make it again with: "
        "spillway plan)",
        name, file.page_size, page_size);
  const StepIdentity step = identity_of(tape);
  if (step.operators != file.step.operators || step.operator_hash != file.step.operator_hash)
    throw PlanError("{} (record this step with spillway profile, and make the plan again with: "
                    "spillway plan)",
                    text_of_other_step(file, name, step.operators, kind_of));
  // Equal operators whose storages live differently: the plan names values by their number, so it
  // would move others than it means.
  if (step != file.step)
    throw PlanError("{}: the plan is for the same operators on other tensors: {} {} (make it again "
                    "with: spillway plan)",
                    name, counted(file.step.values, "value"),
                    step.values == file.step.values ? std::string("of other sizes or lifetimes")
                                                    : message("and not {}", step.values));
  try {
    StepPlan plan;
    plan.strategy = file.strategy;
    plan.replays = file.replays;
    plan.steps = rewrite_tape(tape, plan.replays);
    plan.replay_seconds = replay_seconds(tape, plan.replays);
    // Evaluated anew with the rates of today, so figures in the file are never passed on as
    // predictions.
    plan.swaps = restore_swaps(plan.steps.tape, file.swaps, limits);
    if (!plan.swaps.is_feasible || !plan.swaps.estimate.is_complete)
      throw PlanError("it cannot be carried out within {}", file.budget);
    return plan;
  } catch (const PlanError& error) {
    throw PlanError("{}: {} (make it again with: spillway plan)", name, error.what());
  }
}

std::string to_text(const PlanFile& file) {
  json document;
  document["format"] = kPlanFormat.name;
  // The lowest version that can say it, so that older readers take what concerns them.
  document["version"] = file.far ? kVersion : kVersionOfOneTier;
  document["strategy"] = file.strategy;
  if (!file.device.empty()) document["device"] = file.device;
  document["step"] = {{"operators", file.step.operators},
                      {"values", file.step.values},
                      {"operator_hash", hexadecimal_text(file.step.operator_hash)},
                      {"value_hash", hexadecimal_text(file.step.value_hash)}};
  if (!file.ops.empty()) document["operators"] = operators_json(file);
  document["page_bytes"] = file.page_size.count();
  document["budget_bytes"] = file.budget.count();
  document["small_bytes"] = file.small_bytes.count();
  document["rates"] = profile::rates_json<json>(file.rates);
  if (file.far) {
    document["far"] = profile::rates_json<json>(file.far->rates);
    document["far"]["near_pages"] = file.far->near_pages;
  }
  json& replays = document["replays"] = {{"before", json::array()}, {"op", json::array()}};
  for (const Replay& replay : file.replays) {
    replays["before"].push_back(replay.before);
    replays["op"].push_back(replay.op);
  }
  document["swaps"] = swaps_json(file.swaps, file.far.has_value());
  document["filled_share"] = file.swaps.filled_share;
  document["figures"] = {{"step_seconds", file.figures.step_seconds},
                         {"bound_seconds", file.figures.bound_seconds},
                         {"peak_bytes", file.figures.peak.count()}};
  // Names of programs are bytes of a file system, and need not be UTF-8.
  document["checksum"] = checksum_of(document.dump(-1, ' ', false, json::error_handler_t::replace));
  return json_by_lines(document);
}

PlanFile parse_plan_file(std::string_view text, const std::string& name) {
  try {
    return PlanReader(text, name).read();
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), message("make the plan again with: {}",
                                                                 kPlanFormat.made_by)));
  }
}

}  // namespace spillway::planner
