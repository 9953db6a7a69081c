#include "spillway/runtime/settings/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "setting_fields.h"
#include "spillway/base/error.h"
#include "spillway/base/launcher.h"
#include "spillway/base/nearest_name.h"

namespace spillway::runtime {
namespace {

constexpr std::string_view kPrefix = "SPILLWAY_";

// Variables with our prefix that choose nothing for a run: the marks that `spillway run` leaves,
// and what the build, its scripts and the tests read.
constexpr std::array<std::string_view, 13> kOtherVariables{
    "SPILLWAY_ACTIVE",        "SPILLWAY_PRIVATE_FILES", "SPILLWAY_JOINED", kHiddenLauncher,
    "SPILLWAY_LIBTORCH_DIR",  "SPILLWAY_LIBTORCH",      "SPILLWAY_SHARD",  "SPILLWAY_SHARD_WORDS",
    "SPILLWAY_SKIP_",         "SPILLWAY_WITH_",         "SPILLWAY_BUILD_", "SPILLWAY_TEST_",
    "SPILLWAY_REFERENCE_DATA"};

// A name that ends in '_' stands for all that begin so.
bool is_other_variable(std::string_view name) {
  return std::any_of(kOtherVariables.begin(), kOtherVariables.end(), [&](std::string_view other) {
    return other.back() == '_' ? name.substr(0, other.size()) == other : name == other;
  });
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> known_keys() {
  std::vector<std::string_view> keys;
  for (const SettingField& field : setting_fields()) keys.push_back(field.info.key);
  return keys;
}

const SettingField* find_field(std::string_view key) {
  for (const SettingField& field : setting_fields())
    if (field.info.key == key) return &field;
  return nullptr;
}

const SettingField* find_field_of_variable(const std::string& name) {
  for (const SettingField& field : setting_fields())
    if (environment_name(field.info.key) == name) return &field;
  return nullptr;
}

[[noreturn]] void refuse_variable(const std::string& name) {
  // By what stands behind the prefix: that is long, and would make any name look near.
  std::vector<std::string> names;
  for (const SettingField& field : setting_fields())
    names.push_back(environment_name(field.info.key).substr(kPrefix.size()));
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto nearest = nearest_name(std::string_view(name).substr(kPrefix.size()), views);
  if (nearest)
    throw ConfigError("unknown variable {} (did you mean '{}{}'?)", name, kPrefix, *nearest);
  throw ConfigError("unknown variable {} (unset it; spillway run --help names all settings)", name);
}

// The value of a config line: up to a comment, or what stands between double quotes.
std::string value_of_line(std::string_view text, const std::string& path, std::size_t number) {
  if (!text.empty() && text.front() == '"') {
    const auto end = text.find('"', 1);
    const auto rest =
        end == std::string_view::npos ? std::string_view("x") : trimmed(text.substr(end + 1));
    if (!rest.empty() && rest.front() != '#')
      throw ConfigError("{}:{}: a quote is not closed, or text follows it", path, number);
    return std::string(text.substr(1, end - 1));
  }
  // A '#' inside of a word (a folder's name) starts no comment.
  auto comment = text.find('#');
  while (comment != std::string_view::npos && comment > 0 && text[comment - 1] != ' ' &&
         text[comment - 1] != '\t')
    comment = text.find('#', comment + 1);
  return std::string(trimmed(text.substr(0, comment)));
}

const std::string* last_value(const NamedTexts& texts, std::string_view name) {
  const std::string* found = nullptr;
  for (const auto& [each, value] : texts)
    if (each == name) found = &value;
  return found;
}

// That mean something with --split alone.
constexpr std::array<std::string_view, 9> kOfSplit{"stages",    "replicas",  "shards",
                                                   "gradients", "schedule",  "window",
                                                   "replicate", "rebalance", "check-control"};

/// Config files and variables may be shared by runs with and without it.
void refuse_options_of_split(const SettingSources& sources) {
  for (const std::string_view key : kOfSplit) {
    const std::string* value = last_value(sources.options, key);
    if (value != nullptr && *value != find_field(key)->info.fallback)
      throw ConfigError(
          "{}{} {} is for --split: without it each rank trains for itself, all of the "
          "model (add --split, or leave this option out)",
          sources.options_origin, key, *value);
  }
}

// The config file that counts, or an empty path.
std::string named_config_file(const SettingSources& sources) {
  const std::string* path = last_value(sources.options, "config");
  if (path == nullptr) path = last_value(sources.environment, environment_name("config"));
  return path == nullptr ? std::string() : *path;
}

struct ConfigLine {
  std::string key;
  std::string value;
  std::size_t number;
};

[[noreturn]] void refuse_config_file(const std::string& path) {
  throw ConfigError("cannot read the config file {}: {} (name another with --config, or unset "
                    "SPILLWAY_CONFIG)",
                    path, std::strerror(errno));
}

std::vector<ConfigLine> read_config_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse_config_file(path);
  std::vector<ConfigLine> result;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') continue;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos)
      throw ConfigError("{}:{}: expected `key = value`, found '{}'", path, number, text);
    std::string key(trimmed(text.substr(0, equals)));
    if (find_field(key) == nullptr)
      throw ConfigError("{}:{}: unknown setting '{}'{}", path, number, key,
                        hint_for(key, known_keys()));
    if (key == "config")
      throw ConfigError("{}:{}: a config file cannot name another one (leave this line out)", path,
                        number);
    for (const ConfigLine& earlier : result)
      if (earlier.key == key)
        throw ConfigError("{}:{}: '{}' is set a second time (first in line {})", path, number, key,
                          earlier.number);
    std::string value = value_of_line(trimmed(text.substr(equals + 1)), path, number);
    result.push_back({std::move(key), std::move(value), number});
  }
  if (file.bad()) refuse_config_file(path);
  return result;
}

void apply_config_file(Settings& settings, const std::string& path) {
  for (const ConfigLine& line : read_config_lines(path))
    assign_setting(settings, line.key, line.value,
                   message("{}:{}: {}", path, line.number, line.key));
}

// Empty when there is none any more: then only absolute paths can be understood.
std::string current_folder() {
  std::error_code gone;
  const auto folder = std::filesystem::current_path(gone);
  return gone ? std::string() : folder.string();
}

// Links are not resolved, and ".." stays: behind a link it means something else than the text says.
std::string absolute_path(std::string_view path, const std::string& folder) {
  if (path.empty() || path.front() == '/') return std::string(path);
  if (folder.empty())
    throw ConfigError("{} is relative, and the current folder is gone (cd elsewhere, or give an "
                      "absolute path)",
                      path);
  while (path.substr(0, 2) == "./") path.remove_prefix(2);
  if (path.empty() || path == ".") return folder;
  return folder + (folder.back() == '/' ? "" : "/") + std::string(path);
}

// "ram:SIZE,DIR[:SIZE],..." as seen from `folder`.
std::string absolute_directories(std::string_view list, const std::string& folder) {
  std::string result;
  while (true) {
    const auto comma = list.find(',');
    const std::string_view entry = list.substr(0, comma);
    const bool is_memory = entry.starts_with(kHostMemory);
    const bool is_relative = !is_memory && !entry.empty() && entry.front() != '/';
    if (is_relative && folder.find(',') != std::string::npos)
      throw ConfigError("{} is a relative path below {}, whose comma would separate directories "
                        "(work in another folder, or spill elsewhere)",
                        entry, folder);
    result += is_memory ? std::string(entry) : absolute_path(entry, folder);
    if (comma == std::string_view::npos) return result;
    result += ',';
    list.remove_prefix(comma + 1);
  }
}

// A percent sign of the folder must not be taken for %p or %r.
std::string with_doubled_percent_signs(const std::string& folder) {
  std::string result;
  for (const char c : folder) result.append(c == '%' ? 2 : 1, c);
  return result;
}

}  // namespace

std::span<const SettingInfo> setting_catalogue() {
  static const std::vector<SettingInfo> kInfos = [] {
    std::vector<SettingInfo> made;
    for (const SettingField& field : setting_fields()) made.push_back(field.info);
    return made;
  }();
  return kInfos;
}

std::string environment_name(std::string_view key) {
  std::string name(kPrefix);
  for (const char c : key)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string absolute_paths(const SettingInfo& info, std::string_view value,
                           const std::string& folder) {
  if (!info.is_path) return std::string(value);
  if (info.key == "nvme") return absolute_directories(value, folder);
  if (info.key == "stats" || info.key == "trace" || info.key == "profile-out")
    return absolute_path(value, with_doubled_percent_signs(folder));
  return absolute_path(value, folder);
}

void assign_setting(Settings& settings, std::string_view key, std::string_view value,
                    std::string_view origin) {
  const SettingField* field = find_field(key);
  if (field == nullptr) {
    const auto keys = known_keys();
    throw ConfigError("{}: unknown setting '{}'{}", origin, key, hint_for(key, keys));
  }
  try {
    field->assign(settings, absolute_paths(field->info, trimmed(value), current_folder()));
  } catch (const ConfigError& reason) {
    // Many reasons end with a hint in brackets, which says more than the kind of value does.
    const std::string_view text = reason.what();
    if (text.ends_with(')')) throw ConfigError("{}: {}", origin, text);
    throw ConfigError("{}: {} (expected: {})", origin, text, field->info.value);
  }
}

NamedTexts read_config_file(const std::string& path) {
  NamedTexts result;
  for (ConfigLine& line : read_config_lines(path))
    result.emplace_back(std::move(line.key), std::move(line.value));
  return result;
}

Settings load_settings(const SettingSources& sources) {
  Settings settings;
  const std::string config = named_config_file(sources);
  if (!config.empty()) apply_config_file(settings, config);
  for (const auto& [name, value] : sources.environment) {
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (is_other_variable(name)) continue;
    const SettingField* field = find_field_of_variable(name);
    if (field == nullptr) refuse_variable(name);
    // An empty variable is how scripts take one back.
    if (!value.empty()) assign_setting(settings, field->info.key, value, name);
  }
  for (const auto& [key, value] : sources.options)
    assign_setting(settings, key, value, sources.options_origin + key);
  if (!settings.split) refuse_options_of_split(sources);
  if (settings.verify && settings.gds == device::DirectFiles::kOn)
    throw ConfigError("--verify and --gds on exclude each other: checksums are of bytes that pass "
                      "through host memory (leave out one of them)");
  if (settings.split && settings.update == UpdatePlace::kHost)
    throw ConfigError(
        "--update host is not for --split, whose ranks update what they own on their GPUs (leave "
        "one of both out)");
  return settings;
}

NamedTexts absolute_path_settings(const SettingSources& sources) {
  const std::string config = named_config_file(sources);
  const NamedTexts file = config.empty() ? NamedTexts() : read_config_file(config);
  NamedTexts result;
  for (const SettingField& field : setting_fields()) {
    if (!field.info.is_path) continue;
    const std::string key(field.info.key);
    const std::string* value = last_value(sources.options, key);
    if (value == nullptr) value = last_value(sources.environment, environment_name(key));
    if (value == nullptr || value->empty()) value = last_value(file, key);
    if (value != nullptr)
      result.emplace_back(key, absolute_paths(field.info, trimmed(*value), current_folder()));
  }
  return result;
}

NamedTexts spillway_environment() {
  NamedTexts result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || text.substr(0, kPrefix.size()) != kPrefix) continue;
    result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

Settings settings_from_environment() { return load_settings({{}, spillway_environment()}); }

std::string expand_stats_path(std::string_view pattern, long process_id, std::string_view rank,
                              std::optional<std::string_view> device) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p')
      path += std::to_string(process_id);
    else if (next == 'r')
      path += rank.empty() ? "0" : rank;
    else if (next == 'd' && device)
      path += *device;
    else if (next == '%')
      path += '%';
    else
      path += pattern[i];
    if (next == 'p' || next == 'r' || next == '%' || (next == 'd' && device)) ++i;
  }
  return path;
}

bool is_of_each_rank(std::string_view pattern) {
  return expand_stats_path(pattern, 1, "1") != expand_stats_path(pattern, 2, "2");
}

std::string output_path(const Settings& settings, std::string_view pattern,
                        std::optional<std::string_view> device) {
  const std::string rank = launched_rank().value_or("0");
  const std::string path = expand_stats_path(pattern, ::getpid(), rank, device);
  if (path.empty() || settings.split || rank == "0" || is_of_each_rank(pattern)) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / whole.stem()).string() + "." + rank + whole.extension().string();
}

std::optional<std::string> launched_rank() {
  const auto launcher = find_launcher();
  return launcher ? std::optional(std::to_string(launcher->rank)) : std::nullopt;
}

unsigned launched_ranks_here() {
  const auto launcher = find_launcher();
  return launcher ? launcher->ranks_here : 1;
}

}  // namespace spillway::runtime
