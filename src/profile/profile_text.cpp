#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/json_writer.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/autograd_links.h"
#include "spillway/profile/step_profile.h"

namespace spillway::profile {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMinor = 6;

constexpr std::int64_t kMost31 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMost64 = std::numeric_limits<std::int64_t>::max();

// Empty: unknown.
constexpr std::array<std::string_view, 5> kSources{"", "recorded", "dtr", "pipedream", "piper"};
// By number, in that order.
constexpr std::int64_t kMostPhase = static_cast<std::int64_t>(OpPhase::kOther);
constexpr std::array<Named<StorageClass>, 7> kClasses{
    {{"unknown", StorageClass::kUnknown},
     {"parameter", StorageClass::kParameter},
     {"gradient", StorageClass::kGradient},
     {"optimizer-state", StorageClass::kOptimizerState},
     {"buffer", StorageClass::kBuffer},
     {"activation", StorageClass::kActivation},
     {"input", StorageClass::kInput}}};

// -------------------------------------------------------------------------------------- writing

template <typename List, typename Field>
ordered_json column(const List& list, const Field& field) {
  ordered_json values = ordered_json::array();
  for (const auto& each : list) values.push_back(field(each));
  return values;
}

/// No operator and no value: -1.
std::int64_t or_minus_one(std::uint32_t index) {
  return index == std::numeric_limits<std::uint32_t>::max() ? -1 : std::int64_t{index};
}

ordered_json ops_json(const StepProfile& profile) {
  const auto& ops = profile.tape.ops;
  ordered_json json;
  json["kind"] = profile.kind_of_op;
  json["signature"] = column(ops, [](const TapeOp& op) { return hexadecimal_text(op.signature); });
  json["time_ns"] = column(ops, [](const TapeOp& op) { return op.time.count(); });
  json["spread_ns"] = column(profile.spread_of_op, [](Duration time) { return time.count(); });
  json["inside_peak_pages"] = column(ops, [](const TapeOp& op) { return op.inside_peak_pages; });
  json["replayable"] = column(ops, [](const TapeOp& op) { return op.is_replayable ? 1 : 0; });
  json["use_count"] = column(ops, [](const TapeOp& op) { return op.use_count; });
  if (profile.phase_of_op.empty()) return json;
  json["phase"] =
      column(profile.phase_of_op, [](OpPhase phase) { return static_cast<std::uint32_t>(phase); });
  json["forward"] = column(profile.forward_of_op, or_minus_one);
  return json;
}

ordered_json values_json(const StepProfile& profile) {
  const auto& values = profile.tape.values;
  ordered_json json;
  json["bytes"] = column(profile.bytes_of_value, [](Bytes size) { return size.count(); });
  json["birth"] = column(values, [](const TapeValue& value) { return or_minus_one(value.birth); });
  json["death"] = column(values, [](const TapeValue& value) { return or_minus_one(value.death); });
  json["becomes"] =
      column(values, [](const TapeValue& value) { return or_minus_one(value.becomes); });
  json["class"] = column(profile.class_of_value,
                         [](StorageClass each) { return static_cast<std::uint32_t>(each); });
  return json;
}

/// As the reader takes it, whatever the program is called.
std::string plain(const std::string& text) { return without_control_characters(text); }

ordered_json disks_json(const FarTier& disks) {
  ordered_json json = rates_json<ordered_json>(disks.rates);
  json["host_pages"] = disks.near_pages;
  return json;
}

ordered_json needs_json(const ProgramNeeds& needs) {
  return {{"budget_bytes", needs.budget.count()},
          {"operator", plain(needs.op.name)},
          {"arguments", plain(needs.op.arguments)},
          {"early", needs.is_early ? 1 : 0}};
}

ordered_json dependences_json(const std::vector<HiddenDependence>& dependences) {
  return {{"before", column(dependences, [](const HiddenDependence& each) { return each.before; })},
          {"after", column(dependences, [](const HiddenDependence& each) { return each.after; })}};
}

ordered_json json_of(const StepProfile& profile) {
  const ProfileOrigin& origin = profile.origin;
  ordered_json json;
  json["format"] = kProfileFormat.name;
  json["version"] = kVersion;
  json["minor"] = kMinor;
  json["origin"] = {{"source", origin.source},
                    {"program", plain(origin.program)},
                    {"command", plain(origin.command)},
                    {"device", origin.device},
                    {"clock", origin.clock},
                    {"libtorch", origin.libtorch},
                    {"spillway", origin.spillway},
                    {"threads", origin.threads},
                    {"steps", origin.steps}};
  json["page_bytes"] = profile.page_size.count();
  json["small_bytes"] = profile.small_bytes.count();
  json["small_parameter_bytes"] = profile.small_parameter_bytes.count();
  if (profile.program_needs) json["program_needs"] = needs_json(*profile.program_needs);
  if (profile.rates) json["rates"] = rates_json<ordered_json>(*profile.rates);
  if (profile.disks) json["disks"] = disks_json(*profile.disks);
  json["classes"] = column(kClasses, [](const auto& each) { return each.name; });
  json["kinds"] = {
      {"name", column(profile.kinds, [](const OpKind& kind) { return plain(kind.name); })},
      {"arguments",
       column(profile.kinds, [](const OpKind& kind) { return plain(kind.arguments); })}};
  json["ops"] = ops_json(profile);
  json["uses"] = {
      {"value", column(profile.tape.uses, [](const TapeUse& use) { return use.value; })},
      {"writes", column(profile.tape.uses, [](const TapeUse& use) { return use.writes ? 1 : 0; })}};
  json["values"] = values_json(profile);
  if (profile.hidden_dependences)
    json["dependences"] = dependences_json(*profile.hidden_dependences);
  return json;
}

// -------------------------------------------------------------------------------------- reading

/// Reads one file. Objects are closed when all that this version knows of them has been read.
class ProfileReader {
 public:
  explicit ProfileReader(const std::string& name) : name_(name) {}

  StepProfile read(std::string_view text) {
    const JsonText json(text, name_, JsonText::kAnyFormat);
    JsonObject root = json.root();
    read_head(root);
    read_origin(root.object("origin"));
    if (root.has("program_needs")) read_needs(root.object("program_needs"));
    if (root.has("rates")) read_rates(root.object("rates"));
    if (root.has("disks")) read_disks(root.object("disks"));
    read_kinds(root.object("kinds"));
    read_uses(root.object("uses"));
    read_ops(root.object("ops"));
    read_classes(root);
    read_values(root.object("values"));
    if (root.has("dependences")) read_dependences(root.object("dependences"));
    close(root);
    return std::move(profile_);
  }

 private:
  void read_head(JsonObject& root) {
    root.require_format(kProfileFormat);
    const std::uint64_t version = root.count("version", 1, kMost64);
    if (version > kVersion)
      throw ConfigError("{}: version {} of the format is newer than this Spillway, which reads {} "
                        "(record the profile again, or use a newer Spillway)",
                        name_, version, kVersion);
    is_newer_ = root.has("minor") && root.count("minor", 0, kMost64) > kMinor;
    profile_.page_size = Bytes(root.count("page_bytes", 1, kMost32));
    profile_.small_bytes = Bytes(root.count("small_bytes", 0, kMost64));
    if (root.has("small_parameter_bytes"))
      profile_.small_parameter_bytes = Bytes(root.count("small_parameter_bytes", 0, kMost64));
  }

  void read_origin(JsonObject json) {
    ProfileOrigin& origin = profile_.origin;
    origin.source = json.text("source");
    if (!is_newer_ && std::find(kSources.begin(), kSources.end(), origin.source) == kSources.end())
      throw ConfigError("{} is '{}', not recorded, dtr, pipedream or piper", json.place("source"),
                        shown_text(origin.source));
    origin.program = json.text("program");
    if (json.has("command")) origin.command = json.text("command");
    if (json.has("device")) origin.device = json.text("device");
    if (json.has("clock")) origin.clock = json.text("clock");
    origin.libtorch = json.text("libtorch");
    origin.spillway = json.text("spillway");
    origin.threads = static_cast<std::uint32_t>(json.count("threads", 0, kMost32));
    origin.steps = static_cast<std::uint32_t>(json.count("steps", 0, kMost32));
    close(json);
  }

  void read_needs(JsonObject json) {
    ProgramNeeds needs;
    needs.budget = Bytes(json.count("budget_bytes", 1, kMost64));
    needs.op = {json.text("operator"), json.text("arguments")};
    needs.is_early = json.count("early", 0, 1) != 0;
    profile_.program_needs = std::move(needs);
    close(json);
  }

  void read_rates(JsonObject json) {
    profile_.rates = rates_in(json);
    close(json);
  }

  void read_disks(JsonObject json) {
    if (!profile_.rates)
      throw ConfigError("{}: it has disks behind host memory, and no rates of the link between",
                        name_);
    profile_.disks = {profile::rates_in(json),
                      static_cast<std::uint32_t>(json.count("host_pages", 0, kMost31))};
    close(json);
  }

  void read_kinds(JsonObject json) {
    std::vector<std::string> names = json.texts("name", JsonObject::kAnySize);
    std::vector<std::string> arguments = json.texts("arguments", names.size());
    profile_.kinds.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      profile_.kinds.push_back({std::move(names[i]), std::move(arguments[i])});
    close(json);
  }

  void read_uses(JsonObject json) {
    const auto values = json.counts<ValueIndex>("value", JsonObject::kAnySize, 0, kMost32 - 1);
    const auto writes = json.counts<std::uint8_t>("writes", values.size(), 0, 1);
    profile_.tape.uses.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      profile_.tape.uses.push_back({values[i], writes[i] != 0});
    close(json);
  }

  void read_ops(JsonObject json) {
    profile_.kind_of_op = json.counts<std::uint32_t>("kind", JsonObject::kAnySize, 0, kMost32);
    const std::size_t size = profile_.kind_of_op.size();
    const std::vector<std::uint64_t> signatures = json.hexadecimals("signature", size);
    const auto times = json.counts<std::int64_t>("time_ns", size, 0, kMost64);
    const auto peaks = json.counts<std::uint32_t>("inside_peak_pages", size, 0, kMost32);
    const auto replayable = json.counts<std::uint8_t>("replayable", size, 0, 1);
    const auto uses = json.counts<std::uint32_t>("use_count", size, 0, kMost32);
    std::uint64_t first_use = 0;
    for (std::size_t i = 0; i < size; ++i) {
      TapeOp& op = profile_.tape.ops.emplace_back();
      op.signature = signatures[i];
      op.time = Duration(times[i]);
      op.first_use = static_cast<std::uint32_t>(first_use);
      op.use_count = uses[i];
      op.inside_peak_pages = peaks[i];
      op.is_replayable = replayable[i] != 0;
      first_use += uses[i];
      if (first_use > profile_.tape.uses.size())
        throw ConfigError("{}: operators up to number {} have {} uses of {}", name_, i, first_use,
                          profile_.tape.uses.size());
    }
    for (const std::int64_t spread : json.counts<std::int64_t>("spread_ns", size, 0, kMost64))
      profile_.spread_of_op.emplace_back(spread);
    if (json.has("phase")) read_phases(json, size);
    close(json);
  }

  void read_phases(JsonObject& ops, std::size_t size) {
    for (const auto phase : ops.counts<std::uint8_t>("phase", size, 0, kMostPhase))
      profile_.phase_of_op.push_back(static_cast<OpPhase>(phase));
    // -1 becomes the largest index, which stands for "none".
    profile_.tape.forward_end = forward_end_of(profile_.phase_of_op);
    profile_.forward_of_op = ops.counts<OpIndex>("forward", size, -1, kMost32 - 1);
  }

  void read_classes(JsonObject& root) {
    const std::vector<std::string> names = root.texts("classes", JsonObject::kAnySize);
    for (const std::string& name : names) {
      try {
        classes_.push_back(value_named(shown_text(name), kClasses, "class of values"));
      } catch (const ConfigError& error) {
        throw ConfigError("{}: {}", root.place("classes"), error.what());
      }
    }
  }

  void read_values(JsonObject json) {
    const auto bytes = json.counts<std::uint64_t>("bytes", JsonObject::kAnySize, 1, kMost64);
    // -1 becomes the largest index, which stands for "none" in tapes.
    const auto births = json.counts<OpIndex>("birth", bytes.size(), -1, kMost32 - 1);
    const auto deaths = json.counts<OpIndex>("death", bytes.size(), -1, kMost32 - 1);
    const auto becomes = json.counts<ValueIndex>("becomes", bytes.size(), -1, kMost32 - 1);
    const auto classes = json.counts<std::size_t>("class", bytes.size(), 0, kMost32);
    const std::uint64_t page = profile_.page_size.count();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint64_t pages = (bytes[i] - 1) / page + 1;
      if (pages > kMost32)
        throw ConfigError("{}[{}] is {}, more than can be planned for", json.place("bytes"), i,
                          bytes[i]);
      if (classes[i] >= classes_.size())
        throw ConfigError("{}[{}] is {}, but there are {} classes", json.place("class"), i,
                          classes[i], classes_.size());
      profile_.tape.values.push_back(
          {static_cast<std::uint32_t>(pages), births[i], deaths[i], becomes[i]});
      profile_.bytes_of_value.emplace_back(bytes[i]);
      profile_.class_of_value.push_back(classes_[classes[i]]);
    }
    close(json);
  }

  void read_dependences(JsonObject json) {
    const auto before = json.counts<OpIndex>("before", JsonObject::kAnySize, 0, kMost32 - 1);
    const auto after = json.counts<OpIndex>("after", before.size(), 0, kMost32 - 1);
    profile_.hidden_dependences.emplace();
    for (std::size_t i = 0; i < before.size(); ++i)
      profile_.hidden_dependences->push_back({before[i], after[i]});
    close(json);
  }

  /// A newer minor version may say more than this one knows.
  void close(const JsonObject& object) const {
    if (!is_newer_) object.refuse_others();
  }

  const std::string& name_;
  bool is_newer_ = false;
  std::vector<StorageClass> classes_;
  StepProfile profile_;
};

}  // namespace

std::string to_text(const StepProfile& profile) { return json_by_lines(json_of(profile)); }

StepProfile parse_profile(std::string_view text, const std::string& name) {
  const auto refuse = [](std::string_view what) {
    throw ConfigError("{}", with_next_step(what, "record or import it again: spillway profile"));
  };
  StepProfile profile;
  try {
    profile = ProfileReader(name).read(text);
    check(profile);
  } catch (const PlanError& error) {
    refuse(message("{}: {}", name, error.what()));
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  return profile;
}

}  // namespace spillway::profile
