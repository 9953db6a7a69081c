#include "spillway/runtime/settings/spill_directories.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::runtime {
namespace {

// Why nothing can be spilled there; empty when it can.
std::string why_not_spill_to(const topology::Directory& directory) {
  const std::string reason = topology::reason_against(directory);
  if (!reason.empty()) return reason;
  if (directory.free && *directory.free < memory::kPageSize)
    return "is full: No space left on device (free some, or name another with --nvme DIR)";
  return {};
}

// What each process may fill: the user's limit or its share of what is free.
Bytes room_in(const ResolvedDirectory& directory, unsigned sharers) {
  const Bytes free = directory.facts.free.value_or(Bytes(0)) / sharers;
  return directory.limit > Bytes(0) ? std::min(directory.limit, free) : free;
}

// Paths are separated by colons elsewhere. Empty where no directory stands before the first one.
std::string about_colon(const std::string& path, const DirectorySurroundings& surroundings) {
  const std::string before = path.substr(0, path.find(':'));
  if (before == path || !surroundings.inspect(before).exists) return {};
  return message("; commas separate directories, and a colon stands before a size alone: {}:8GiB",
                 before);
}

ResolvedDirectory resolve(const swap::SpillDirectory& named,
                          const DirectorySurroundings& surroundings) {
  ResolvedDirectory result;
  result.facts = surroundings.inspect(named.path);
  result.limit = named.limit;
  const std::string reason = why_not_spill_to(result.facts);
  if (!reason.empty())
    throw ConfigError("spill directory {} {}{}", named.path, reason,
                      result.facts.exists ? "" : about_colon(named.path, surroundings));
  return result;
}

ResolvedDirectory roomiest_candidate(const DirectorySurroundings& surroundings) {
  std::optional<ResolvedDirectory> best;
  std::string reasons;
  for (const std::string& path : surroundings.candidates) {
    ResolvedDirectory candidate;
    candidate.facts = surroundings.inspect(path);
    std::string reason = why_not_spill_to(candidate.facts);
    if (reason.empty() && candidate.facts.is_ram_disk) reason = "is a RAM disk";
    if (reason.empty() && candidate.facts.is_network) reason = "is on a network file system";
    if (!reason.empty())
      reasons += message("{}{} {}", reasons.empty() ? "" : "; ", path, reason);
    else if (!best || room_in(candidate, 1) > room_in(*best, 1))
      best = candidate;
  }
  if (!best)
    throw ConfigError("no directory to spill to: {} (name one on a local disk with --nvme DIR)",
                      reasons);
  return *best;
}

std::vector<std::string> warnings_of(const ResolvedDirectory& directory, unsigned sharers) {
  const topology::Directory& facts = directory.facts;
  std::vector<std::string> warnings;
  if (facts.is_ram_disk)
    warnings.push_back(message("spill directory {} is a RAM disk ({}): what spills there frees no "
                               "memory",
                               facts.path, facts.filesystem.value_or("tmpfs")));
  if (facts.is_network)
    warnings.push_back(message("spill directory {} is on a network file system ({}): expect it to "
                               "be slow",
                               facts.path, *facts.filesystem));
  if (facts.device && facts.device->is_rotational.value_or(false))
    warnings.push_back(message("spill directory {} is on {}, which says that it rotates: expect it "
                               "to be slow",
                               facts.path, facts.device->name));
  if (facts.free && directory.limit > *facts.free / sharers)
    warnings.push_back(message("spill directory {} has {} free, less than the {} allowed there{}",
                               facts.path, *facts.free, directory.limit * sharers,
                               sharers > 1
                                   ? message(" ({} to each of {} ranks)", directory.limit, sharers)
                                   : std::string()));
  return warnings;
}

using Rate = TransferRate topology::DiskRate::*;

/// For each of those that share them.
std::optional<TransferRate> sum_of(const std::vector<ResolvedDirectory>& directories, Rate rate,
                                   unsigned sharers) {
  TransferRate sum;
  std::set<std::string> disks;
  for (const ResolvedDirectory& directory : directories) {
    if (!directory.measured) return std::nullopt;
    const std::string disk =
        directory.facts.device ? directory.facts.device->name : directory.facts.path;
    if (disks.insert(disk).second) sum += (*directory.measured).*rate;
  }
  if (sum.is_none()) return std::nullopt;
  return sum / sharers;
}

/// Pages go to all of them in turn, and the slowest one is waited for. `otherwise` where one of
/// them was not measured.
double dearest_of(const std::vector<ResolvedDirectory>& directories,
                  std::optional<double> topology::DiskRate::*cost, double otherwise) {
  double dearest = 0.0;
  for (const ResolvedDirectory& directory : directories) {
    if (!directory.measured || !((*directory.measured).*cost)) return otherwise;
    dearest = std::max(dearest, *((*directory.measured).*cost));
  }
  return directories.empty() ? otherwise : dearest;
}

}  // namespace

std::string describe(const ResolvedDirectory& directory) {
  const topology::Directory& facts = directory.facts;
  std::string text = message("{} ({}{})", facts.path, facts.filesystem.value_or("unknown"),
                             facts.device ? " on " + facts.device->name : std::string());
  if (facts.free) text += message(", {} free", *facts.free);
  if (directory.limit > Bytes(0)) text += message(", at most {}", directory.limit);
  if (!directory.measured) return text + ", not measured (spillway bench-io)";
  const topology::DiskRate& rate = *directory.measured;
  return text + message(", measured: write {}, read {}", rate.write, rate.read);
}

std::optional<TransferRate> ResolvedDirectories::read_rate() const {
  return sum_of(directories, &topology::DiskRate::read, sharers);
}

std::optional<TransferRate> ResolvedDirectories::write_rate() const {
  return sum_of(directories, &topology::DiskRate::write, sharers);
}

std::optional<double> ResolvedDirectories::duplex_share() const {
  // A disk whose rate for both was not measured would make the sum too small.
  for (const ResolvedDirectory& directory : directories)
    if (!directory.measured || directory.measured->both.is_none()) return std::nullopt;
  const auto both = sum_of(directories, &topology::DiskRate::both, sharers);
  const auto read = read_rate();
  const auto write = write_rate();
  if (!both || !read || !write) return std::nullopt;
  return std::min(1.0, *both / (*read + *write));
}

profile::TransferRates ResolvedDirectories::rates(profile::TransferRates otherwise) const {
  profile::TransferRates rates = otherwise;
  rates.write = write_rate().value_or(rates.write / sharers);
  rates.read = read_rate().value_or(rates.read / sharers);
  rates.duplex_share = duplex_share().value_or(rates.duplex_share);
  rates.write_fixed_seconds =
      dearest_of(directories, &topology::DiskRate::write_fixed_seconds, rates.write_fixed_seconds);
  rates.read_fixed_seconds =
      dearest_of(directories, &topology::DiskRate::read_fixed_seconds, rates.read_fixed_seconds);
  rates.interference_seconds_per_byte =
      dearest_of(directories, &topology::DiskRate::interference_seconds_per_byte,
                 rates.interference_seconds_per_byte);
  return rates;
}

std::string ResolvedDirectories::assumed() const {
  std::string text;
  const auto add = [&](bool is_measured, const char* name) {
    if (!is_measured) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  const auto has = [&](std::optional<double> topology::DiskRate::*cost) {
    return dearest_of(directories, cost, -1.0) >= 0.0;
  };
  add(write_rate() && read_rate(), "rates");
  add(duplex_share().has_value(), "duplex share");
  add(has(&topology::DiskRate::write_fixed_seconds) && has(&topology::DiskRate::read_fixed_seconds),
      "fixed costs");
  add(has(&topology::DiskRate::interference_seconds_per_byte), "slowdown of operators");
  return text;
}

std::optional<TransferRate> ResolvedDirectories::checksum_rate() const {
  for (const ResolvedDirectory& directory : directories)
    if (directory.measured && directory.measured->checksum) return directory.measured->checksum;
  return std::nullopt;
}

double checksum_seconds_per_byte(std::optional<TransferRate> of_processor, double processors) {
  constexpr TransferRate kAssumed{1e10};
  return (of_processor.value_or(kAssumed) * std::max(1.0, processors)).seconds_for(1.0);
}

DirectorySurroundings surroundings_without_rates() {
  DirectorySurroundings surroundings;
  surroundings.inspect = [](const std::string& path) { return topology::inspect_directory(path); };
  if (const char* folder = std::getenv("TMPDIR"); folder != nullptr && *folder != '\0')
    surroundings.candidates.push_back(folder);
  for (const char* folder : {"/var/tmp", "/tmp", "."}) surroundings.candidates.push_back(folder);
  return surroundings;
}

DirectorySurroundings real_surroundings(const Settings& settings) {
  DirectorySurroundings surroundings = surroundings_without_rates();
  if (!settings.rates.empty()) {
    surroundings.rates = topology::DiskRates::load(settings.rates);
    return surroundings;
  }
  const std::string path = topology::default_disk_rates_path();
  if (path.empty()) return surroundings;
  try {
    surroundings.rates = topology::DiskRates::load_if_there(path);
  } catch (const Error& unreadable) {
    // Nobody asked for it by name: a home folder may belong to another user (containers), and the
    // file may be of another version.
    surroundings.warnings.push_back(message("plans start from guesses: {}", unreadable.what()));
  }
  return surroundings;
}

ResolvedDirectories resolve_spill_directories(const Settings& settings, Bytes budget,
                                              const DirectorySurroundings& surroundings,
                                              unsigned sharers) {
  ResolvedDirectories result;
  result.sharers = sharers;
  if (settings.store == swap::StoreKind::kRam) {
    if (settings.host_tier > Bytes())
      throw ConfigError(
          "--store ram keeps everything in memory, and has no place for {} before the "
          "disks (leave the ram: of --nvme out, or --store ram)",
          settings.host_tier);
    return result;
  }
  for (const swap::SpillDirectory& named : settings.nvme)
    result.directories.push_back(resolve(named, surroundings));
  if (result.directories.empty()) result.directories.push_back(roomiest_candidate(surroundings));
  result.warnings = surroundings.warnings;
  Bytes room = settings.host_tier;
  for (ResolvedDirectory& directory : result.directories) {
    directory.warnings = warnings_of(directory, sharers);
    result.warnings.insert(result.warnings.end(), directory.warnings.begin(),
                           directory.warnings.end());
    room += room_in(directory, sharers);
    const topology::DiskRate* rate = surroundings.rates.find(
        directory.facts.path, directory.facts.mount_point.value_or(std::string()));
    if (rate != nullptr) directory.measured = *rate;
    if (!settings.rates.empty() &&
        (rate == nullptr || rate->read.is_none() || rate->write.is_none()))
      result.warnings.push_back(message(
          "{} has no rates for writing and reading in {}: plans start from guesses (measure "
          "them with: spillway bench-io --rates {} {})",
          settings.rates, directory.facts.path, shell_word(settings.rates),
          shell_word(directory.facts.path)));
  }
  if (room < budget) {
    result.shortage = message("only {} can be spilled (to {}{}{}), less than the budget of {}: "
                              "a trainer that needs more than both stops",
                              room, result.directories.front().facts.path,
                              result.directories.size() > 1 ? ", …" : "",
                              sharers > 1 ? message(", by each of {} ranks", sharers) : "", budget);
    result.warnings.push_back(result.shortage);
  }
  return result;
}

}  // namespace spillway::runtime
