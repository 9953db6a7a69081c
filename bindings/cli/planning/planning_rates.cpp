#include "planning/planning_rates.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "setting_values.h"
#include "spillway/base/bytes.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/transfer_rate.h"
#include "spillway/runtime/host_tier.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/runtime/settings/spill_directories.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {

using profile::TransferRates;

namespace {

double number_in(const std::string& text, const char* option, const char* unit) {
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end)
    throw ConfigError("{}: '{}' is no number{}", option, shown_text(text), unit);
  return value;
}

double duplex_in(const std::string& text) {
  const double share = number_in(text, "--duplex", "");
  if (!(share >= profile::kLeastDuplexShare && share <= 1.0))
    throw ConfigError("--duplex is {}, not from {} to 1", share, profile::kLeastDuplexShare);
  return share;
}

ChosenRates given_rates(const RateOptions& options) {
  for (const auto& [option, text, other] :
       {std::tuple{"--link-out", &options.link_out, "--link-in"},
        std::tuple{"--link-in", &options.link_in, "--link-out"}}) {
    if (text->empty())
      throw ConfigError("{} is missing beside {}: a link has a rate in either direction", option,
                        other);
  }
  TransferRates rates;
  rates.write_bytes_per_second = rate_in(options.link_out, "--link-out");
  rates.read_bytes_per_second = rate_in(options.link_in, "--link-in");
  // A link of its own beside the processors' memory: both directions at once, nobody slowed down.
  rates.duplex_share = options.duplex.empty() ? 1.0 : duplex_in(options.duplex);
  rates.interference_seconds_per_byte = 0.0;
  return {rates, "given"};
}

/// As a run reads them, whose sizes mean nothing here.
std::vector<std::string> directories_in(const std::string& text) {
  runtime::Settings settings;
  runtime::assign_setting(settings, "nvme", text, "--nvme");
  if (settings.host_tier > Bytes())
    throw ConfigError("--nvme: {} of memory before the disks are for runs: plans take them as "
                      "--host-memory (leave the ram: out)",
                      settings.host_tier);
  std::vector<std::string> paths;
  for (const swap::SpillDirectory& directory : settings.nvme) {
    if (directory.limit > Bytes(0))
      throw ConfigError("--nvme: {} has a size of {}, which is for runs: plans need the rates of "
                        "{} alone (leave the size out)",
                        directory.path, directory.limit, directory.path);
    paths.push_back(directory.path);
  }
  return paths;
}

std::string known_directories(const topology::DiskRates& disks) {
  std::string text;
  for (const topology::DiskRate& disk : disks.all()) (text += ' ') += disk.directory;
  return text.empty() ? " none" : text;
}

const topology::DiskRate& rate_of(const topology::DiskRates& disks, const std::string& directory,
                                  const std::string& file) {
  if (const topology::DiskRate* rate = disks.find(directory, "")) return *rate;
  const topology::Directory here = topology::inspect_directory(directory);
  if (const auto* rate = disks.find(here.path, "")) return *rate;
  // Only the recorded rates of this machine are known to be of its mounts: a file that was named
  // may come from another one, where a directory of this name lies on another disk.
  if (file == topology::default_disk_rates_path() && here.is_directory)
    if (const auto* rate = disks.find(here.path, here.mount_point.value_or(""))) return *rate;
  throw ConfigError("{} has no rates of {} (measured there:{}; measure it with: spillway bench-io "
                    "{})",
                    file, directory, known_directories(disks), shell_word(directory));
}

ChosenRates measured_rates(const RateOptions& options, const profile::StepProfile& profile) {
  const std::string file =
      options.rates.empty() ? topology::default_disk_rates_path() : options.rates;
  const auto disks = topology::DiskRates::load(file);
  std::vector<std::string> names;
  if (!options.nvme.empty()) {
    names = directories_in(options.nvme);
  } else if (disks.all().size() == 1) {
    names = {disks.all().front().directory};
  } else if (disks.all().empty()) {
    throw ConfigError("{} has the rates of no directory (measure one with: spillway bench-io "
                      "--rates {} DIR)",
                      file, shell_word(file));
  } else {
    throw ConfigError("{} has the rates of {} directories: say which with --nvme DIR (measured "
                      "there:{})",
                      file, disks.all().size(), known_directories(disks));
  }
  runtime::ResolvedDirectories places;
  std::string source = file + ":";
  for (const std::string& name : names) {
    runtime::ResolvedDirectory& place = places.directories.emplace_back();
    place.measured = rate_of(disks, name, file);
    place.facts.path = name;
    if (!place.measured->device.empty())
      place.facts.device = topology::BlockDevice{place.measured->device, {}, {}};
    (source += ' ') += name;
    if (place.measured->directory != name)
      source += message(" (measured in {})", place.measured->directory);
  }
  const auto write = places.write_bytes_per_second();
  const auto read = places.read_bytes_per_second();
  if (!write || !read)
    throw ConfigError("{} lacks the rate for {} of{} (measure again with: spillway bench-io "
                      "--rates {} DIR)",
                      file, write ? "reading" : "writing", source.substr(file.size() + 1),
                      shell_word(file));
  ChosenRates chosen{profile.rates.value_or(TransferRates{}), source};
  // The share is the disk's, the other costs were seen where the profile was recorded.
  chosen.rates.duplex_share = TransferRates{}.duplex_share;
  chosen.rates = places.rates(chosen.rates);
  if (const std::string assumed = places.assumed(); !assumed.empty())
    chosen.source += message(" (not measured there: {})", assumed);
  return chosen;
}

std::string known_links(const topology::DiskRates& rates) {
  std::string text;
  for (const topology::LinkRate& link : rates.links())
    (text += text.empty() ? " " : ", ") += message("'{}'", link.name);
  return text.empty() ? " none" : text;
}

/// The link of a GPU as `bench-io` has measured it.
ChosenRates measured_link(const RateOptions& options) {
  const auto rates = topology::DiskRates::load(options.rates);
  const topology::LinkRate* link = rates.link_of(options.gpu);
  if (options.gpu.empty() && rates.links().size() == 1) link = &rates.links().front();
  if (link != nullptr) return {runtime::rates_of(*link), options.rates + ": " + link->name};
  if (options.gpu.empty() && !rates.links().empty())
    throw ConfigError("{} has the links of {} kinds of GPU: say which with --gpu NAME (measured "
                      "there:{})",
                      options.rates, rates.links().size(), known_links(rates));
  throw ConfigError("{} has no link of {} (measured there:{}; measure it with: spillway bench-io "
                    "--rates {} --device cuda:0, or name its rates with --link-out and --link-in)",
                    options.rates, options.gpu.empty() ? "a GPU" : "'" + options.gpu + "'",
                    known_links(rates), shell_word(options.rates));
}

TransferRates given_disks(const RateOptions& options) {
  TransferRates rates;
  rates.write_bytes_per_second = rate_in(options.disk_out, "--disk-out");
  rates.read_bytes_per_second = rate_in(options.disk_in, "--disk-in");
  return rates;
}

/// The first option of several that was given, with its value; empty: none.
std::string given_of(std::initializer_list<std::pair<const char*, const std::string*>> options) {
  for (const auto& [option, text] : options)
    if (!text->empty()) return message("{} {}", option, *text);
  return {};
}

/// What the profile says of its disks is enough.
bool has_tiers_of_profile(const RateOptions& options, const profile::StepProfile& profile) {
  return profile.disks && given_of({{"--link-out", &options.link_out},
                                    {"--link-in", &options.link_in},
                                    {"--duplex", &options.duplex},
                                    {"--rates", &options.rates},
                                    {"--nvme", &options.nvme},
                                    {"--disk-out", &options.disk_out},
                                    {"--disk-in", &options.disk_in},
                                    {"--gpu", &options.gpu}})
                              .empty();
}

void refuse_half_tiers(const RateOptions& options) {
  const bool has_disk = !options.disk_out.empty() || !options.disk_in.empty();
  if (options.host_memory.empty()) {
    if (!options.gpu.empty())
      throw ConfigError("--gpu {} belongs to --host-memory, which is missing: it is what lies "
                        "behind the link of a GPU",
                        options.gpu);
    const std::string link =
        given_of({{"--link-out", &options.link_out}, {"--link-in", &options.link_in}});
    const std::string disks = given_of({{"--rates", &options.rates}, {"--nvme", &options.nvme}});
    if (!link.empty() && !disks.empty())
      throw ConfigError("{} and {} both say what transfers take: leave one out, or put disks "
                        "behind a link with --host-memory SIZE",
                        link, disks);
    if (!has_disk) return;
    const bool is_out = !options.disk_out.empty();
    throw ConfigError(
        "{} {} belongs to --host-memory, which is missing: a disk alone is --link-out "
        "and --link-in, or --rates",
        is_out ? "--disk-out" : "--disk-in", is_out ? options.disk_out : options.disk_in);
  }
  const bool link_is_measured = options.link_out.empty() && options.link_in.empty();
  if (link_is_measured && options.rates.empty())
    throw ConfigError("--host-memory {} lies behind a link: name its rates with --link-out and "
                      "--link-in, or with --rates FILE (measure a GPU's with: spillway bench-io "
                      "--rates FILE --device cuda:0)",
                      options.host_memory);
  if (link_is_measured && !options.duplex.empty())
    throw ConfigError("--duplex {} belongs to --link-out and --link-in, which are missing",
                      options.duplex);
  if (!link_is_measured && !options.gpu.empty())
    throw ConfigError("--gpu {} names a measured link, and --link-out and --link-in name another: "
                      "leave one out",
                      options.gpu);
  const bool has_file = (!options.rates.empty() && !link_is_measured) || !options.nvme.empty();
  if (has_disk && has_file)
    throw ConfigError("--disk-out and --disk-in say what --rates and --nvme say, too: name one of "
                      "the two");
  if (!has_disk && !has_file && !link_is_measured)
    throw ConfigError("--host-memory {} has an end, and nothing is named that takes the rest: name "
                      "disks with --disk-out and --disk-in, or with --rates; or leave it out",
                      options.host_memory);
  if (has_disk && (options.disk_out.empty() || options.disk_in.empty()))
    throw ConfigError("{} is missing beside {}: a disk has a rate in either direction",
                      options.disk_out.empty() ? "--disk-out" : "--disk-in",
                      options.disk_out.empty() ? "--disk-in" : "--disk-out");
}

Bytes host_memory_in(const RateOptions& options, const profile::StepProfile& profile) {
  const Bytes size = size_in("--host-memory", options.host_memory);
  if (size < profile.page_size)
    throw ConfigError("--host-memory {} holds no page of {}; without host memory, give --link-out "
                      "and --link-in the rates of the disk",
                      options.host_memory, profile.page_size);
  return size;
}

/// A GPU's operators run beside the disks of its host and are not slowed down by them.
DisksBehind disks_behind(const RateOptions& options, const profile::StepProfile& profile) {
  DisksBehind disks;
  disks.host_memory = host_memory_in(options, profile);
  ChosenRates chosen{{}, "given"};
  if (options.disk_out.empty())
    chosen = measured_rates(options, profile);
  else
    chosen.rates = given_disks(options);
  disks.rates = chosen.rates;
  disks.rates.interference_seconds_per_byte = 0.0;
  disks.source = chosen.source;
  return disks;
}

/// A run that has not moved anything that way, on a disk that nobody measured, records what plans
/// begin with.
bool is_guess(const TransferRates& rates, double TransferRates::*field) {
  constexpr double kRounding = 1e-6;  // Of a mean of the guess and nothing.
  const double guess = TransferRates{}.*field;
  return std::abs(rates.*field - guess) <= kRounding * guess;
}

ChosenRates rates_of_profile(const TransferRates& rates) {
  const bool guesses_write = is_guess(rates, &TransferRates::write_bytes_per_second);
  const bool guesses_read = is_guess(rates, &TransferRates::read_bytes_per_second);
  if (guesses_write && guesses_read)
    return {rates, "guesses: nothing was measured where the profile was recorded; see --rates and "
                   "--link-out"};
  if (!guesses_write && !guesses_read) return {rates, "of the profile, from where it was recorded"};
  return {rates, message("of the profile, from where it was recorded; {} is a guess, see --rates",
                         guesses_write ? "out" : "in")};
}

/// As a file of `bench-io` and the directories of `nvme` are about what a step of two tiers has.
bool measures_tiers_of_profile(const RateOptions& options, const profile::StepProfile& profile) {
  return profile.disks && given_of({{"--link-out", &options.link_out},
                                    {"--link-in", &options.link_in},
                                    {"--duplex", &options.duplex},
                                    {"--disk-out", &options.disk_out},
                                    {"--disk-in", &options.disk_in}})
                              .empty();
}

/// A link and disks behind it, as the run that was recorded had them.
ChosenRates tiers_of_profile(const RateOptions& options, const profile::StepProfile& profile) {
  const std::string source = "of the profile, from where it was recorded";
  Bytes host_memory = profile.disks->host_pages * profile.page_size;
  if (!options.host_memory.empty()) host_memory = host_memory_in(options, profile);
  ChosenRates chosen{*profile.rates, source};
  chosen.far =
      DisksBehind{profile.disks->rates, host_memory, rates_of_profile(profile.disks->rates).source};
  return chosen;
}

/// The same, with the rates of what the file knows of: of the link, of disks, or of both.
ChosenRates measured_tiers(const RateOptions& options, const profile::StepProfile& profile) {
  ChosenRates chosen = tiers_of_profile(options, profile);
  const auto known = topology::DiskRates::load(
      options.rates.empty() ? topology::default_disk_rates_path() : options.rates);
  const bool names_link = !options.rates.empty() && !known.links().empty();
  if (names_link || !options.gpu.empty()) {
    const ChosenRates link = measured_link(options);
    chosen.rates = link.rates;
    chosen.source = link.source;
  }
  if (known.all().empty() && options.nvme.empty()) return chosen;
  const ChosenRates disks = measured_rates(options, profile);
  chosen.far->rates = disks.rates;
  chosen.far->rates.interference_seconds_per_byte = 0.0;
  chosen.far->source = disks.source;
  return chosen;
}

}  // namespace

double rate_in(const std::string& text, const char* option) {
  const double rate = 1e9 * number_in(text, option, " of GB/s");
  if (!is_transfer_rate(rate))
    throw ConfigError("{}: {} GB/s is no rate of a link or a disk (give from {} to {})", option,
                      shown_text(text), kLeastTransferRate / 1e9, kMostTransferRate / 1e9);
  return rate;
}

ChosenRates choose_rates(const RateOptions& options, const profile::StepProfile& profile) {
  if (has_tiers_of_profile(options, profile)) return tiers_of_profile(options, profile);
  if (measures_tiers_of_profile(options, profile)) return measured_tiers(options, profile);
  refuse_half_tiers(options);
  if (!options.host_memory.empty()) {
    const bool link_is_measured = options.link_out.empty() && options.link_in.empty();
    ChosenRates chosen = link_is_measured ? measured_link(options) : given_rates(options);
    chosen.far = disks_behind(options, profile);
    return chosen;
  }
  if (!options.link_out.empty() || !options.link_in.empty()) return given_rates(options);
  if (!options.duplex.empty())
    throw ConfigError("--duplex {} belongs to --link-out and --link-in, which are missing",
                      options.duplex);
  if (!options.rates.empty() || !options.nvme.empty()) return measured_rates(options, profile);
  if (profile.rates) return rates_of_profile(*profile.rates);
  return {TransferRates{}, "guesses for a fair NVMe disk; see --rates and --link-out"};
}

std::optional<planner::FarTier> far_tier(const ChosenRates& rates, Bytes page_size) {
  if (!rates.far) return std::nullopt;
  // Planners count pages in 31 bits; more than a step has makes no difference.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t pages = std::min(rates.far->host_memory / page_size, kMost);
  return planner::FarTier{rates.far->rates, static_cast<std::uint32_t>(pages)};
}

namespace {

std::string rates_text(const TransferRates& rates) {
  std::string text = message("{} out, {} in", gb_per_s(rates.write_bytes_per_second),
                             gb_per_s(rates.read_bytes_per_second));
  if (rates.duplex_share >= 1.0) return text + ", both at once";
  return text + message(", {} % of that while both run",
                        static_cast<int>(100.0 * rates.duplex_share + 0.5));
}

}  // namespace

std::string rates_text(const ChosenRates& rates) {
  const std::string text = rates_text(rates.rates);
  if (!rates.far) return text;
  return message("{}; {} of host memory, then {}", text, rates.far->host_memory,
                 rates_text(rates.far->rates));
}

}  // namespace spillway::cli
