#include "planning/planning_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/runtime/host_tier.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/runtime/settings/spill_directories.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {

using profile::TransferRates;

namespace {

ChosenRates given_rates(const RateOptions& options) {
  TransferRates rates;
  rates.write = *options.link_out;
  rates.read = *options.link_in;
  // A link of its own beside the processors' memory: both directions at once, nobody slowed down.
  rates.duplex_share = options.duplex.value_or(1.0);
  rates.interference_seconds_per_byte = 0.0;
  return {rates, "given"};
}

/// Where nobody has named a file, nothing may have been measured so far.
topology::DiskRates known_rates(const RateOptions& options) {
  return options.rates.empty()
             ? topology::DiskRates::load_if_there(topology::default_disk_rates_path())
             : topology::DiskRates::load(options.rates);
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
  const bool is_own = file == topology::default_disk_rates_path();
  const std::string named_file = is_own ? "" : message("--rates {} ", shell_word(file));
  if (is_own && here.is_directory)
    if (const auto* rate = disks.find(here.path, here.mount_point.value_or(""))) return *rate;
  if (!here.is_directory)
    throw ConfigError(
        "{} has no rates of {}, which is no directory of this machine ({}; or name its rates with "
        "--link-out and --link-in)",
        file, directory,
        disks.all().empty() ? message("measure one that is: spillway bench-io {}DIR", named_file)
                            : message("name one that was measured:{}", known_directories(disks)));
  if (is_own && disks.all().empty())
    throw ConfigError(
        "--nvme {}: nobody has measured it (do so with: spillway bench-io {}; or name "
        "its rates with --link-out and --link-in)",
        directory, shell_word(directory));
  throw ConfigError("{} has no rates of {} (measured there:{}; measure it with: spillway bench-io "
                    "{}{})",
                    file, directory, known_directories(disks), named_file, shell_word(directory));
}

ChosenRates measured_rates(const RateOptions& options, const profile::StepProfile& profile) {
  const std::string file =
      options.rates.empty() ? topology::default_disk_rates_path() : options.rates;
  const topology::DiskRates disks = known_rates(options);
  std::vector<std::string> names;
  if (!options.nvme.empty()) {
    names = options.nvme;
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
  const auto write = places.write_rate();
  const auto read = places.read_rate();
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

/// What neither the profile nor the options say, and what both a link and a file of rates say.
void refuse_half_tiers(const RateOptions& options) {
  const bool has_link = options.link_out.has_value();
  const bool has_file = options.has_measured_disks();
  if (!options.host_memory) {
    if (!options.gpu.empty())
      throw ConfigError("--gpu {} belongs to --host-memory, which is missing: it is what lies "
                        "behind the link of a GPU",
                        options.gpu);
    if (has_link && has_file)
      throw ConfigError("--link-out {} and {} both say what transfers take: leave one out, or put "
                        "disks behind a link with --host-memory SIZE",
                        options.link_out->bytes_per_second() / 1e9,
                        options.rates.empty() ? "--nvme" : "--rates " + options.rates);
    return;
  }
  const std::string size = as_option(*options.host_memory);
  if (!has_link && options.rates.empty())
    throw ConfigError("--host-memory {} lies behind a link: name its rates with --link-out and "
                      "--link-in, or with --rates FILE (measure a GPU's with: spillway bench-io "
                      "--rates FILE --device cuda:0)",
                      size);
  if (has_link && options.disk_out && has_file)
    throw ConfigError("--disk-out and --disk-in say what --rates and --nvme say, too: name one of "
                      "the two");
  if (has_link && !options.disk_out && !has_file)
    throw ConfigError("--host-memory {} has an end, and nothing is named that takes the rest: name "
                      "disks with --disk-out and --disk-in, or with --rates; or leave it out",
                      size);
}

Bytes host_memory_in(const RateOptions& options, const profile::StepProfile& profile) {
  if (*options.host_memory < profile.page_size)
    throw ConfigError("--host-memory of {} holds no page of {}; without host memory, give "
                      "--link-out and --link-in the rates of the disk",
                      *options.host_memory, profile.page_size);
  return *options.host_memory;
}

/// A GPU's operators run beside the disks of its host and are not slowed down by them.
DisksBehind disks_behind(ChosenRates disks, Bytes host_memory) {
  disks.rates.interference_seconds_per_byte = 0.0;
  return {disks.rates, host_memory, disks.source};
}

ChosenRates given_disks(const RateOptions& options) {
  ChosenRates chosen{{}, "given"};
  chosen.rates.write = *options.disk_out;
  chosen.rates.read = *options.disk_in;
  return chosen;
}

/// A run that has not moved anything that way, on a disk that nobody measured, records what plans
/// begin with.
bool is_guess(const TransferRates& rates, TransferRate TransferRates::*field) {
  constexpr double kRounding = 1e-6;  // Of a mean of the guess and nothing.
  return std::abs(rates.*field / (TransferRates{}.*field) - 1.0) <= kRounding;
}

/// What to do about guesses: also with what this machine has measured for its own runs.
std::string better_rates() {
  topology::DiskRates known;
  try {
    known = topology::DiskRates::load_if_there(topology::default_disk_rates_path());
  } catch (const Error&) {
    // Its mistake is told where it is asked for.
  }
  if (known.all().empty()) return "see --rates and --link-out";
  return message("name measured disks with --nvme DIR, or see --link-out; measured here:{}",
                 known_directories(known));
}

ChosenRates rates_of_profile(const TransferRates& rates) {
  const bool guesses_write = is_guess(rates, &TransferRates::write);
  const bool guesses_read = is_guess(rates, &TransferRates::read);
  if (guesses_write && guesses_read)
    return {rates, message("guesses: nothing was measured where the profile was recorded; {}",
                           better_rates())};
  if (!guesses_write && !guesses_read) return {rates, "of the profile, from where it was recorded"};
  return {rates, message("of the profile, from where it was recorded; {} is a guess: {}",
                         guesses_write ? "out" : "in", better_rates())};
}

/// A link and disks behind it, as the run that was recorded had them.
ChosenRates tiers_of_profile(const RateOptions& options, const profile::StepProfile& profile) {
  const std::string source = "of the profile, from where it was recorded";
  Bytes host_memory = profile.disks->near_pages * profile.page_size;
  if (options.host_memory) host_memory = host_memory_in(options, profile);
  ChosenRates chosen{*profile.rates, source};
  chosen.far =
      DisksBehind{profile.disks->rates, host_memory, rates_of_profile(profile.disks->rates).source};
  return chosen;
}

/// The same, with the rates of what a named file knows of: of the link, of disks, or of both.
ChosenRates measured_tiers(const RateOptions& options, const profile::StepProfile& profile) {
  ChosenRates chosen = tiers_of_profile(options, profile);
  if (!options.has_measured_disks()) return chosen;
  const topology::DiskRates known = known_rates(options);
  if ((!options.rates.empty() && !known.links().empty()) || !options.gpu.empty()) {
    const ChosenRates link = measured_link(options);
    chosen.rates = link.rates;
    chosen.source = link.source;
  }
  if (known.all().empty() && options.nvme.empty()) return chosen;
  chosen.far = disks_behind(measured_rates(options, profile), chosen.far->host_memory);
  return chosen;
}

/// While both directions are busy.
TransferRate slower_way(const profile::TransferRates& rates) {
  return std::min(rates.write, rates.read) * rates.duplex_share;
}

}  // namespace

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

ChosenRates choose_rates(const RateOptions& options, const profile::StepProfile& profile) {
  const bool has_link = options.link_out.has_value();
  // A link that is named takes the place of all that was recorded.
  if (profile.disks && !has_link && !options.disk_out) return measured_tiers(options, profile);
  refuse_half_tiers(options);
  if (options.host_memory) {
    ChosenRates chosen = has_link ? given_rates(options) : measured_link(options);
    const Bytes host_memory = host_memory_in(options, profile);
    chosen.far = disks_behind(
        options.disk_out ? given_disks(options) : measured_rates(options, profile), host_memory);
    return chosen;
  }
  if (has_link) return given_rates(options);
  if (options.has_measured_disks()) return measured_rates(options, profile);
  if (profile.rates) return rates_of_profile(*profile.rates);
  return {TransferRates{}, message("guesses for a fair NVMe disk; {}", better_rates())};
}

TransferRates measured_disks(const RateOptions& options, const profile::StepProfile& profile) {
  TransferRates rates = measured_rates(options, profile).rates;
  rates.write = rates.write * rates.duplex_share;
  rates.read = rates.read * rates.duplex_share;
  rates.duplex_share = 1.0;
  return rates;
}

SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile) {
  const bool names_disks = options.has_measured_disks() || options.disk_out.has_value();
  if (options.host_memory && names_disks) {
    const ChosenRates chosen = choose_rates(options, profile);
    const TransferRate host = slower_way(chosen.rates);
    return {host, std::min(host, slower_way(chosen.far->rates) / sharers)};
  }
  RateOptions link = options;
  link.host_memory.reset();
  refuse_half_tiers(link);
  if (options.link_out) return {slower_way(given_rates(options).rates), {}};
  // A link that a profile has is none that was named: disks take its place.
  return {names_disks ? slower_way(measured_disks(options, profile)) / sharers : TransferRate(),
          {}};
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
  std::string text = message("{} out, {} in", rates.write, rates.read);
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
