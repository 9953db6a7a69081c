#include "spillway/runtime/plan_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::runtime {

using planner::PlannedSwap;
using planner::Replay;
using planner::StepPlan;
using planner::SwapLimits;
using profile::StepTape;
using profile::TransferRates;

namespace {

using nlohmann::json;

constexpr const char* kFormat = "spillway-plan";
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kVersionOfOneTier = 1;  // Older readers know it, and need no more.
constexpr int kDepth = 3;                      // The root, the objects in it, their lists.
constexpr std::int64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMost64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kMostPageBytes = std::uint64_t{1} << 30;
// From a floppy disk to what no memory moves.
constexpr double kLeastRate = 1e5;
constexpr double kMostRate = 1e12;

/// Readers of JSON keep whole numbers exact up to 2^53 only.
std::string hexadecimal(std::uint64_t number) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4U)
    text[i] = "0123456789abcdef"[number & 15U];
  return text;
}

/// Of the document without its checksum. Sorted keys: another layout of the same content is equal.
std::string checksum_of(json document) {
  document.erase("checksum");
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  std::uint64_t hash = text.size();
  for (const char letter : text) hash = profile::mix(hash, static_cast<unsigned char>(letter));
  return hexadecimal(hash);
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

struct RateField {
  const char* key;
  double TransferRates::*field;
  double least;
  double most;
};
constexpr std::array<RateField, 6> kRateFields{
    {{"write_bytes_per_second", &TransferRates::write_bytes_per_second, kLeastRate, kMostRate},
     {"read_bytes_per_second", &TransferRates::read_bytes_per_second, kLeastRate, kMostRate},
     {"duplex_share", &TransferRates::duplex_share, 1e-3, 1.0},
     {"write_fixed_seconds", &TransferRates::write_fixed_seconds, 0.0, 1e3},
     {"read_fixed_seconds", &TransferRates::read_fixed_seconds, 0.0, 1e3},
     {"interference_seconds_per_byte", &TransferRates::interference_seconds_per_byte, 0.0, 1.0}}};

json rates_json(const TransferRates& rates) {
  json fields = json::object();
  for (const RateField& field : kRateFields) fields[field.key] = rates.*field.field;
  return fields;
}

json swaps_json(const planner::SwapChoices& choices, bool has_far) {
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
  explicit PlanReader(const std::string& name) : name_(name) {}

  PlanFile read(std::string_view text) {
    const json root = parsed(text);
    read_head(root);
    file_.strategy = strategy_in(root);
    const json& step = object(root, "step");
    file_.step = {count(step, "operators", 1, kMost32), count(step, "values", 0, kMost32),
                  hash(step, "operator_hash"), hash(step, "value_hash")};
    read_limits(root);
    const json& replays = object(root, "replays");
    const auto before = indices(replays, "before", file_.step.operators);
    const auto op = indices(replays, "op", file_.step.operators);
    require_size(op, before.size(), "op");
    for (std::size_t i = 0; i < op.size(); ++i) file_.replays.push_back({before[i], op[i]});
    read_swaps(object(root, "swaps"));
    file_.swaps.filled_share = number(root, "filled_share", 0.0, 1.0);
    const json& figures = object(root, "figures");
    file_.figures = {number(figures, "step_seconds", 0.0, 1e12),
                     number(figures, "bound_seconds", 0.0, 1e12),
                     Bytes(count(figures, "peak_bytes", 0, kMost64))};
    return std::move(file_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view pattern, const Args&... args) const {
    throw ConfigError("{}: {}", name_, message(pattern, args...));
  }

  json parsed(std::string_view text) const {
    bool is_too_deep = false;
    const auto guard = [&](int depth, json::parse_event_t /*event*/, json& /*value*/) {
      is_too_deep |= depth > kDepth;
      return !is_too_deep;
    };
    try {
      json document = json::parse(text, guard);
      if (!is_too_deep && document.is_object()) return document;
    } catch (const json::exception&) {
      refuse("this is no whole plan file: it was cut short or is something else (make it again "
             "with: spillway plan PROFILE --budget SIZE --out FILE)");
    }
    refuse("this is no plan file (make one with: spillway plan PROFILE --budget SIZE --out FILE)");
  }

  void read_head(const json& root) const {
    if (text_in(root, "format") != kFormat)
      refuse("its format is '{}', not '{}' (make a plan with: spillway plan)",
             text_in(root, "format"), kFormat);
    const auto version = static_cast<std::int64_t>(count(root, "version", 1, kMost64));
    if (version > kVersion)
      refuse("version {} of the format is newer than this Spillway, which reads {} (make the plan "
             "again, or use a newer Spillway)",
             version, kVersion);
    if (text_in(root, "checksum") != checksum_of(root))
      refuse("the plan was changed after it was written (make it again with: spillway plan)");
  }

  std::string strategy_in(const json& root) const {
    std::string strategy = text_in(root, "strategy");
    if (strategy.size() > 100) refuse("the name of its strategy has {} letters", strategy.size());
    return strategy;
  }

  void read_limits(const json& root) {
    file_.page_size = Bytes(count(root, "page_bytes", 1, kMostPageBytes));
    file_.budget = Bytes(count(root, "budget_bytes", 1, kMost64));
    file_.small_bytes = Bytes(count(root, "small_bytes", 0, kMost64));
    if (file_.small_bytes >= file_.budget ||
        (file_.budget - file_.small_bytes) / file_.page_size == 0)
      refuse("its budget of {} holds no page beside the {} that never leave", file_.budget,
             file_.small_bytes);
    file_.rates = rates_in(object(root, "rates"));
    if (count(root, "version", 1, kMost64) == kVersionOfOneTier) return;
    const json& far = object(root, "far");
    file_.far = {rates_in(far), static_cast<std::uint32_t>(count(far, "near_pages", 0, kMost32))};
  }

  TransferRates rates_in(const json& object) const {
    TransferRates rates;
    for (const RateField& field : kRateFields)
      rates.*field.field = number(object, field.key, field.least, field.most);
    return rates;
  }

  void read_far_pages(const json& swaps) {
    std::vector<PlannedSwap>& all = file_.swaps.swaps;
    const auto pages = indices(swaps, "far_pages", kMost32);
    require_size(pages, all.size(), "far_pages");
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].far_pages = pages[i];
      if (pages[i] > all[i].pages)
        refuse("'far_pages' of swap {} are {}, more than its {} pages", i, pages[i], all[i].pages);
    }
  }

  void read_swaps(const json& swaps) {
    planner::SwapChoices& choices = file_.swaps;
    for (const SwapColumn& column : kSwapColumns) {
      const auto list = indices(swaps, column.key, kMost32, column.may_be_none ? -1 : 0);
      if (&column == kSwapColumns.data()) choices.swaps.resize(list.size());
      require_size(list, choices.swaps.size(), column.key);
      for (std::size_t i = 0; i < list.size(); ++i) choices.swaps[i].*column.field = list[i];
    }
    const auto keeps = indices(swaps, "keeps_copy", 2);
    require_size(keeps, choices.swaps.size(), "keeps_copy");
    for (std::size_t i = 0; i < keeps.size(); ++i) choices.swaps[i].keeps_copy = keeps[i] != 0;
    if (file_.far) read_far_pages(swaps);
    choices.write_outs = indices(swaps, "write_outs", choices.swaps.size());
    choices.fetches = indices(swaps, "fetches", choices.swaps.size());
    choices.reserve_pages = indices(swaps, "reserve_pages", kMost32);
    choices.use_distance = indices(swaps, "use_distance", kMost32 + 1);
    choices.birth_distance = indices(swaps, "birth_distance", kMost32 + 1);
  }

  const json& at(const json& parent, const char* key) const {
    const auto found = parent.find(key);
    if (found == parent.end()) refuse("'{}' is missing", key);
    return *found;
  }

  const json& object(const json& parent, const char* key) const {
    const json& value = at(parent, key);
    if (!value.is_object()) refuse("'{}' is no object", key);
    return value;
  }

  std::string text_in(const json& parent, const char* key) const {
    const json& value = at(parent, key);
    if (!value.is_string()) refuse("'{}' is no text", key);
    return value.get<std::string>();
  }

  std::uint64_t whole(const json& value, const char* key, std::int64_t least,
                      std::uint64_t most) const {
    const bool is_whole = value.is_number_integer();
    const bool is_large = is_whole && value.is_number_unsigned() && value > kMost64;
    const std::int64_t number = is_whole && !is_large ? value.get<std::int64_t>() : least - 1;
    if (number < least || (number >= 0 && static_cast<std::uint64_t>(number) > most))
      refuse("'{}' holds {}, not a whole number from {} to {}", key, value.dump().substr(0, 40),
             least, most);
    return static_cast<std::uint64_t>(number);
  }

  std::uint64_t count(const json& parent, const char* key, std::int64_t least,
                      std::uint64_t most) const {
    return whole(at(parent, key), key, least, most);
  }

  double number(const json& parent, const char* key, double least, double most) const {
    const json& value = at(parent, key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= least && number <= most))
      refuse("'{}' is {}, not a number from {} to {}", key, value.dump().substr(0, 40), least,
             most);
    return number;
  }

  /// A list of whole numbers below `end`; -1, where it may stand, becomes the largest index.
  std::vector<std::uint32_t> indices(const json& parent, const char* key, std::uint64_t end,
                                     std::int64_t least = 0) const {
    const json& list = at(parent, key);
    if (!list.is_array()) refuse("'{}' is no list", key);
    std::vector<std::uint32_t> values;
    values.reserve(list.size());
    if (!list.empty() && end == 0) refuse("'{}' is not empty", key);
    for (const json& each : list)
      values.push_back(static_cast<std::uint32_t>(whole(each, key, least, end - 1)));
    return values;
  }

  void require_size(const std::vector<std::uint32_t>& list, std::size_t size,
                    const char* key) const {
    if (list.size() != size) refuse("'{}' has {} entries instead of {}", key, list.size(), size);
  }

  std::uint64_t hash(const json& parent, const char* key) const {
    const std::string text = text_in(parent, key);
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value, 16);
    if (status != std::errc() || stop != end || text.size() != 16)
      refuse("'{}' is no number of 16 hexadecimal digits", key);
    return value;
  }

  const std::string& name_;
  PlanFile file_;
};

}  // namespace

StepIdentity identity_of(const StepTape& tape) {
  StepIdentity identity;
  identity.operators = tape.ops.size();
  identity.values = tape.values.size();
  identity.operator_hash = profile::OpSequence(tape.ops).identity();
  for (const profile::TapeValue& value : tape.values) {
    for (const std::uint32_t part : {value.pages, value.birth, value.death, value.becomes})
      identity.value_hash = profile::mix(identity.value_hash, part);
  }
  return identity;
}

SwapLimits PlanFile::limits() const {
  SwapLimits limits;
  const std::uint64_t pages = (budget - small_bytes) / page_size;
  limits.budget_pages = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, kMost32));
  limits.page_size = page_size;
  limits.rates = rates;
  limits.far = far;
  return limits;
}

PlanFile describe_plan(const StepPlan& plan, const StepTape& tape, const SwapLimits& limits,
                       Bytes budget, Bytes small_bytes) {
  PlanFile file;
  file.strategy = plan.strategy;
  file.step = identity_of(tape);
  file.page_size = limits.page_size;
  file.budget = budget;
  file.small_bytes = small_bytes;
  file.rates = limits.rates;
  file.far = limits.far;
  file.replays = plan.replays;
  file.swaps = planner::choices_of(plan.steps.tape, plan.swaps);
  const planner::StepEstimate& estimate = plan.swaps.estimate;
  file.figures = {estimate.step_seconds, plan.bound.step_seconds,
                  estimate.peak_pages * limits.page_size + small_bytes};
  return file;
}

std::string to_text(const PlanFile& file) {
  json document;
  document["format"] = kFormat;
  document["version"] = file.far ? kVersion : kVersionOfOneTier;
  document["strategy"] = file.strategy;
  document["step"] = {{"operators", file.step.operators},
                      {"values", file.step.values},
                      {"operator_hash", hexadecimal(file.step.operator_hash)},
                      {"value_hash", hexadecimal(file.step.value_hash)}};
  document["page_bytes"] = file.page_size.count();
  document["budget_bytes"] = file.budget.count();
  document["small_bytes"] = file.small_bytes.count();
  document["rates"] = rates_json(file.rates);
  if (file.far) {
    document["far"] = rates_json(file.far->rates);
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
  document["checksum"] = checksum_of(document);
  // One list per line: people find their way, and a difference of two files says something.
  std::string text = "{\n";
  for (auto item = document.begin(); item != document.end(); ++item) {
    if (item != document.begin()) text += ",\n";
    text += json(item.key()).dump() + ": ";
    if (!item->is_object()) {
      text += item->dump(-1, ' ', false, json::error_handler_t::replace);
      continue;
    }
    text += "{\n";
    for (auto inner = item->begin(); inner != item->end(); ++inner) {
      if (inner != item->begin()) text += ",\n";
      text += "  " + json(inner.key()).dump() + ": " + inner->dump();
    }
    text += "}";
  }
  return text + "\n}\n";
}

PlanFile parse_plan_file(std::string_view text, const std::string& name) {
  return PlanReader(name).read(text);
}

StepPlan fit_plan(const PlanFile& file, const std::string& name, const StepTape& tape,
                  Bytes page_size, const SwapLimits& limits) {
  if (page_size != file.page_size)
    throw PlanError(
        "{}: the plan counts pages of {}, the step has pages of {} (make it again with: "
        "spillway plan)",
        name, file.page_size, page_size);
  const StepIdentity step = identity_of(tape);
  if (step.operators != file.step.operators || step.operator_hash != file.step.operator_hash)
    throw PlanError(
        "{}: the plan is for another program or other shapes, a step of {} operators and not "
        "these {} (make it again with: spillway plan)",
        name, file.step.operators, step.operators);
  if (step != file.step)
    throw PlanError("{}: the plan is for the same operators on other tensors: {} values and "
                    "not {}, or of other sizes (make it again with: spillway plan)",
                    name, file.step.values, step.values);
  try {
    StepPlan plan;
    plan.strategy = file.strategy;
    plan.replays = file.replays;
    plan.steps = planner::rewrite_tape(tape, plan.replays);
    plan.replay_seconds = planner::replay_seconds(tape, plan.replays);
    plan.swaps = planner::restore_swaps(plan.steps.tape, file.swaps, limits);
    plan.bound = planner::bound_plan(tape, limits);
    if (!plan.swaps.is_feasible || !plan.swaps.estimate.is_complete)
      throw PlanError("it cannot be carried out within {}", file.budget);
    return plan;
  } catch (const PlanError& error) {
    throw PlanError("{}: {} (make it again with: spillway plan)", name, error.what());
  }
}

}  // namespace spillway::runtime
