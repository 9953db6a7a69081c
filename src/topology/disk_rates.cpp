#include "spillway/topology/disk_rates.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "link_json.h"
#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/transfer_rate.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::topology {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kVersion = 1;

const char* name_of(Load load) {
  switch (load) {
    case Load::kRead: return "read";
    case Load::kWrite: return "write";
    case Load::kBoth: break;
  }
  return "both";
}

Load load_from(const std::string& name, const std::string& place) {
  for (const Load load : {Load::kRead, Load::kWrite, Load::kBoth})
    if (name == name_of(load)) return load;
  throw ConfigError("{} is '{}' instead of read, write or both", place, shown_text(name));
}

/// What may be absent: not measured. Beyond these limits it is a slip.
struct CostField {
  const char* key;
  std::optional<double> DiskRate::*field;
  double least;
  double most;
};
constexpr std::array<CostField, 3> kCostFields{
    {{"write_fixed_seconds", &DiskRate::write_fixed_seconds, 0.0, 1.0},
     {"read_fixed_seconds", &DiskRate::read_fixed_seconds, 0.0, 1.0},
     {"interference_seconds_per_byte", &DiskRate::interference_seconds_per_byte, 0.0, 1e-8}}};
constexpr const char* kChecksums = "checksum_bytes_per_second";

ordered_json to_json(const DiskRate& rate) {
  ordered_json samples = ordered_json::array();
  for (const DiskSample& sample : rate.samples)
    samples.push_back({{"load", name_of(sample.load)},
                       {"block_bytes", sample.block.count()},
                       {"depth", sample.depth},
                       {"read_bytes_per_second", sample.read.bytes_per_second()},
                       {"write_bytes_per_second", sample.write.bytes_per_second()}});
  ordered_json json = {{"directory", rate.directory},
                       {"device", rate.device},
                       {"mount_point", rate.mount_point},
                       {"measured_at", rate.measured_at},
                       {"read_bytes_per_second", rate.read.bytes_per_second()},
                       {"write_bytes_per_second", rate.write.bytes_per_second()},
                       {"both_bytes_per_second", rate.both.bytes_per_second()}};
  for (const CostField& field : kCostFields)
    if (rate.*field.field) json[field.key] = *(rate.*field.field);
  if (rate.checksum) json[kChecksums] = rate.checksum->bytes_per_second();
  json["samples"] = std::move(samples);
  return json;
}

constexpr std::array<const char*, 3> kRatesOfDisks{
    "read_bytes_per_second", "write_bytes_per_second", "both_bytes_per_second"};

/// A rate that was not measured is absent: a disk that moves nothing is a slip.
ordered_json without_unmeasured(ordered_json disk) {
  for (const char* key : kRatesOfDisks)
    if (disk.at(key) == 0.0) disk.erase(key);
  return disk;
}

double number_in(JsonObject& json, const char* key) {
  constexpr double kAny = std::numeric_limits<double>::max();
  return json.number(key, -kAny, kAny);
}

// None: not measured.
TransferRate rate_in(JsonObject& json, const char* key) {
  if (!json.has(key)) return {};
  const TransferRate rate(number_in(json, key));
  const std::string problem = rate_problem(json.place(key), rate);
  if (!problem.empty()) throw ConfigError("{}", problem);
  return rate;
}

// A sample of one direction has 0 for the other one.
TransferRate sample_rate_in(JsonObject& json, const char* key) {
  return json.has(key) && number_in(json, key) == 0.0 ? TransferRate() : rate_in(json, key);
}

// A path may be anything.
std::string text_in(JsonObject& json, const char* key) {
  return json.has(key) ? json.any_text(key) : std::string();
}

DiskSample sample_from(JsonObject& json) {
  constexpr std::uint64_t kMostDepth = std::numeric_limits<unsigned>::max();
  DiskSample sample;
  sample.load = load_from(json.text("load"), json.place("load"));
  sample.block = Bytes(json.count("block_bytes", 0, std::numeric_limits<std::int64_t>::max()));
  sample.depth = static_cast<unsigned>(json.count("depth", 0, kMostDepth));
  sample.read = sample_rate_in(json, "read_bytes_per_second");
  sample.write = sample_rate_in(json, "write_bytes_per_second");
  return sample;
}

DiskRate rate_from(JsonObject& json) {
  DiskRate rate;
  rate.directory = json.any_text("directory");
  rate.device = text_in(json, "device");
  rate.mount_point = text_in(json, "mount_point");
  rate.measured_at = text_in(json, "measured_at");
  rate.read = rate_in(json, "read_bytes_per_second");
  rate.write = rate_in(json, "write_bytes_per_second");
  rate.both = rate_in(json, "both_bytes_per_second");
  for (const CostField& field : kCostFields)
    if (json.has(field.key)) rate.*field.field = json.number(field.key, field.least, field.most);
  if (json.has(kChecksums)) rate.checksum = TransferRate(json.number(kChecksums, 1e7, 1e12));
  for (JsonObject& each : json.objects("samples")) rate.samples.push_back(sample_from(each));
  return rate;
}

// Nothing when there is no such file. Throws IoError when it cannot be read.
std::optional<std::string> text_if_there(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
  return text_of_file(path, "spillway bench-io --rates FILE DIR");
}

}  // namespace

DiskRates DiskRates::load(const std::string& path) {
  const auto text = text_if_there(path);
  if (!text)
    throw IoError("the file of disk rates {} does not exist (make it with: spillway bench-io "
                  "--rates {} DIR)",
                  path, path);
  return parse(*text, path);
}

DiskRates DiskRates::load_if_there(const std::string& path) {
  const auto text = text_if_there(path);
  return text ? parse(*text, path) : DiskRates();
}

DiskRates DiskRates::parse(const std::string& text, const std::string& path) {
  DiskRates rates;
  try {
    const JsonText json(text, path, JsonText::kAnyFormat);
    JsonObject root = json.root();
    root.require_format(kDiskRatesFormat);
    const auto version = root.count("version", 0, std::numeric_limits<std::int64_t>::max());
    if (version != kVersion)
      throw ConfigError("{}: its version is {}, this Spillway reads {}", path, version, kVersion);
    for (JsonObject& each : root.objects("disks")) rates.rates_.push_back(rate_from(each));
    // Files of before GPUs were measured have none.
    if (root.has("links"))
      for (JsonObject& each : root.objects("links")) rates.links_.push_back(link_from(each));
  } catch (const ConfigError& problem) {
    // `bench-io` reads the file before it measures, so that it keeps what it holds of other disks.
    // A file of another kind is not one to remove.
    throw ConfigError(
        "{}", with_next_step(message("not a usable file of disk rates: {}", problem.what()),
                             message("remove it and measure again with: spillway bench-io --rates "
                                     "{} DIR, or name another with --rates FILE",
                                     shell_word(path))));
  }
  return rates;
}

void DiskRates::save(const std::string& path) const {
  ordered_json disks = ordered_json::array();
  for (const DiskRate& rate : rates_) disks.push_back(without_unmeasured(to_json(rate)));
  ordered_json json = {{"format", kDiskRatesFormat.name}, {"version", kVersion}, {"disks", disks}};
  for (const LinkRate& link : links_) json["links"].push_back(to_json(link));
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
  write_file_at_once(path, json.dump(2) + "\n");
}

void DiskRates::record(DiskRate rate) {
  const auto known = std::find_if(rates_.begin(), rates_.end(), [&](const DiskRate& each) {
    return each.directory == rate.directory;
  });
  if (known == rates_.end())
    rates_.push_back(std::move(rate));
  else
    *known = std::move(rate);
}

const DiskRate* DiskRates::find(const std::string& directory,
                                const std::string& mount_point) const {
  for (const DiskRate& rate : rates_)
    if (rate.directory == directory) return &rate;
  for (const DiskRate& rate : rates_)
    if (!mount_point.empty() && rate.mount_point == mount_point) return &rate;
  return nullptr;
}

void DiskRates::record(LinkRate rate) {
  const auto known = std::find_if(links_.begin(), links_.end(),
                                  [&](const LinkRate& each) { return each.name == rate.name; });
  if (known == links_.end())
    links_.push_back(std::move(rate));
  else
    *known = std::move(rate);
}

const LinkRate* DiskRates::link_of(const std::string& name) const {
  for (const LinkRate& link : links_)
    if (link.name == name) return &link;
  return nullptr;
}

std::string default_disk_rates_path() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/spillway/disks.json";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.config/spillway/disks.json";
  return {};
}

}  // namespace spillway::topology
