#include "link_json.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/transfer_rate.h"

namespace spillway::topology {
namespace {

using nlohmann::ordered_json;

constexpr double kLongestOfLink = 1e3;  // Seconds; beyond is a slip.
constexpr std::uint64_t kMostLinkBytes = std::numeric_limits<std::int64_t>::max();

/// What may be absent: not measured.
struct LinkCost {
  const char* key;
  std::optional<double> LinkRate::*field;
  double most;
};
constexpr std::array<LinkCost, 3> kLinkCosts{
    {{"out_fixed_seconds", &LinkRate::out_fixed_seconds, 1.0},
     {"in_fixed_seconds", &LinkRate::in_fixed_seconds, 1.0},
     {"interference_seconds_per_byte", &LinkRate::interference_seconds_per_byte, 1e-8}}};

TransferRate link_rate_in(JsonObject& json, const char* key) {
  constexpr double kAny = std::numeric_limits<double>::max();
  const TransferRate rate(json.number(key, -kAny, kAny));
  const std::string problem = rate_problem(json.place(key), rate);
  if (!problem.empty()) throw ConfigError("{}", problem);
  return rate;
}

LinkSample link_sample_from(JsonObject& json) {
  LinkSample sample;
  sample.block = Bytes(json.count("block_bytes", 1, kMostLinkBytes));
  sample.depth =
      static_cast<unsigned>(json.count("depth", 1, std::numeric_limits<unsigned>::max()));
  sample.beside_work = json.count("beside_work", 0, 1) == 1;
  sample.out = link_rate_in(json, "out_bytes_per_second");
  sample.in = link_rate_in(json, "in_bytes_per_second");
  sample.both = link_rate_in(json, "both_bytes_per_second");
  return sample;
}

MappingSample mapping_from(JsonObject& json) {
  return {Bytes(json.count("chunk_bytes", 1, kMostLinkBytes)), json.text("beside"),
          json.number("map_seconds", 0.0, kLongestOfLink),
          json.number("unmap_seconds", 0.0, kLongestOfLink)};
}

PinningSample pinning_from(JsonObject& json) {
  return {Bytes(json.count("bytes", 1, kMostLinkBytes)),
          json.number("seconds", 0.0, kLongestOfLink)};
}

}  // namespace

ordered_json to_json(const LinkRate& rate) {
  ordered_json json = {{"name", rate.name},
                       {"device", rate.device},
                       {"measured_at", rate.measured_at},
                       {"out_bytes_per_second", rate.out.bytes_per_second()},
                       {"in_bytes_per_second", rate.in.bytes_per_second()},
                       {"both_bytes_per_second", rate.both.bytes_per_second()}};
  for (const LinkCost& field : kLinkCosts)
    if (rate.*field.field) json[field.key] = *(rate.*field.field);
  for (const char* list : {"samples", "mapping", "pinning"}) json[list] = ordered_json::array();
  for (const LinkSample& sample : rate.samples)
    json["samples"].push_back({{"block_bytes", sample.block.count()},
                               {"depth", sample.depth},
                               {"beside_work", sample.beside_work ? 1 : 0},
                               {"out_bytes_per_second", sample.out.bytes_per_second()},
                               {"in_bytes_per_second", sample.in.bytes_per_second()},
                               {"both_bytes_per_second", sample.both.bytes_per_second()}});
  for (const MappingSample& sample : rate.mapping)
    json["mapping"].push_back({{"chunk_bytes", sample.chunk.count()},
                               {"beside", sample.beside},
                               {"map_seconds", sample.map_seconds},
                               {"unmap_seconds", sample.unmap_seconds}});
  for (const PinningSample& sample : rate.pinning)
    json["pinning"].push_back({{"bytes", sample.size.count()}, {"seconds", sample.seconds}});
  return json;
}

LinkRate link_from(JsonObject& json) {
  LinkRate rate;
  rate.name = json.text("name");
  rate.device = json.text("device");
  rate.measured_at = json.text("measured_at");
  rate.out = link_rate_in(json, "out_bytes_per_second");
  rate.in = link_rate_in(json, "in_bytes_per_second");
  rate.both = link_rate_in(json, "both_bytes_per_second");
  for (const LinkCost& field : kLinkCosts)
    if (json.has(field.key)) rate.*field.field = json.number(field.key, 0.0, field.most);
  for (JsonObject& each : json.objects("samples")) rate.samples.push_back(link_sample_from(each));
  for (JsonObject& each : json.objects("mapping")) rate.mapping.push_back(mapping_from(each));
  for (JsonObject& each : json.objects("pinning")) rate.pinning.push_back(pinning_from(each));
  return rate;
}

}  // namespace spillway::topology
