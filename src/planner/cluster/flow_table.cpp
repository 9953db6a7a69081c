#include "flow_table.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace spillway::planner {

FlowTable::FlowTable(const ClusterLinks& links, std::span<const std::uint32_t> devices,
                     std::uint32_t pipelines)
    : links_(links),
      devices_(devices),
      pipelines_(pipelines),
      ranks_(static_cast<std::uint32_t>(devices.size() / pipelines)),
      kinds_of_(ranks_) {}

template <typename MakeRoute>
std::uint32_t FlowTable::find_or_add(Key key, const MakeRoute& make_route) {
  for (const std::uint32_t kind : kinds_of_[key.from])
    if (kinds_[kind].key == key) return kind;
  Kind& added = kinds_.emplace_back(Kind{key, {}});
  // The same ranks on other devices: what is alike about these routes is found by `colours_of`.
  for (std::uint32_t pipeline = 0; pipeline < pipelines_; ++pipeline)
    added.routes.push_back(make_route(pipeline));
  kinds_of_[key.from].push_back(kind_count() - 1);
  return kind_count() - 1;
}

std::uint32_t FlowTable::message(std::uint32_t from, std::uint32_t to) {
  return find_or_add({from, to}, [&](std::uint32_t pipeline) {
    return links_.route({device(from, pipeline)}, {device(to, pipeline)});
  });
}

std::uint32_t FlowTable::copy(std::uint32_t rank, bool is_out, bool is_disk) {
  // Numbers that no rank has.
  const std::uint32_t to = kNobody - (is_out ? 1 : 0) - (is_disk ? 2 : 0);
  return find_or_add({rank, to}, [&](std::uint32_t pipeline) {
    const std::uint32_t at = device(rank, pipeline);
    if (is_disk) return links_.disk_route(at, is_out);
    const Endpoint host{at, /*is_host=*/true};
    return is_out ? links_.route({at}, host) : links_.route(host, {at});
  });
}

std::uint32_t FlowTable::add_shared(const CollectivePhase& phase) {
  // One sum is for all pipelines, and every one is a kind of its own.
  kinds_.push_back({{kNobody, kNobody}, {{phase.uses, phase.latency_seconds}}});
  return kind_count() - 1;
}

namespace {

/// How often each kind passes a link, by link.
using Signature = std::vector<std::pair<std::uint32_t, double>>;

std::vector<Signature> signatures_of(const FlowTable& flows) {
  std::vector<Signature> signatures(flows.links().size());
  for (std::uint32_t kind = 0; kind < flows.kind_count(); ++kind) {
    const std::uint32_t routes = flows.is_shared(kind) ? 1 : flows.pipelines();
    for (std::uint32_t pipeline = 0; pipeline < routes; ++pipeline)
      for (const LinkUse& use : flows.route(kind, pipeline).uses) {
        Signature& signature = signatures[use.link];
        if (signature.empty() || signature.back().first != kind) signature.emplace_back(kind, 0.0);
        signature.back().second += use.streams;
      }
  }
  return signatures;
}

}  // namespace

LinkColours colours_of(const FlowTable& flows) {
  const ClusterLinks& links = flows.links();
  const std::vector<Signature> signatures = signatures_of(flows);
  LinkColours colours;
  colours.colour_of.assign(links.size(), LinkColours::kNoColour);
  std::vector<std::uint32_t> first_links;  // By colour, one of its links.
  std::map<std::tuple<LinkClass, double, Signature>, std::uint32_t> known;
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    if (signatures[link].empty()) continue;
    const auto colour = static_cast<std::uint32_t>(colours.rates.size());
    // Links of unlike rates are full at unlike moments, whatever passes them.
    const auto [found, is_new] =
        known.try_emplace({links.kind(link), links.rate(link), signatures[link]}, colour);
    colours.colour_of[link] = found->second;
    if (!is_new) continue;
    colours.rates.push_back(links.rate(link));
    first_links.push_back(link);
  }
  const auto colours_passed = [&](const Route& route) {
    std::vector<std::pair<std::uint32_t, double>> passed;
    for (const LinkUse& use : route.uses)
      passed.emplace_back(colours.colour_of[use.link], use.streams);
    std::sort(passed.begin(), passed.end());
    return passed;
  };
  colours.routes.resize(flows.kind_count());
  for (std::uint32_t kind = 0; kind < flows.kind_count(); ++kind) {
    const Route& first = flows.route(kind, 0);
    const auto passed = colours_passed(first);
    for (std::uint32_t pipeline = 1; !flows.is_shared(kind) && pipeline < flows.pipelines();
         ++pipeline) {
      const Route& other = flows.route(kind, pipeline);
      // A pipeline of other latencies would run ahead of the rest, although its links are as full.
      colours.are_alike = colours.are_alike && colours_passed(other) == passed &&
                          other.latency_seconds == first.latency_seconds;
    }
    std::vector<LinkUse>& uses = colours.routes[kind];
    for (const auto& [colour, streams] : passed) {
      // A signature has all passages of the kind over the colour in one entry.
      if (!uses.empty() && uses.back().link == colour) continue;
      // The pipeline that is simulated stands for all, on links that all of them load.
      const Signature& signature = signatures[first_links[colour]];
      const auto entry = std::find_if(signature.begin(), signature.end(),
                                      [&](const auto& each) { return each.first == kind; });
      uses.push_back({colour, entry->second});
    }
  }
  return colours;
}

}  // namespace spillway::planner
