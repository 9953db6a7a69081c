#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/planner/cluster/cluster_links.h"
#include "spillway/planner/cluster/collectives.h"
#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::cluster {

/// The routes of a job by kind. A message between two ranks, or the copies of a rank, is one kind
/// with a route in each pipeline; a phase of a reduction is a kind with one route for all.
class FlowTable {
 public:
  /// `devices` by rank, one pipeline after the other. Both must outlive it.
  FlowTable(const ClusterLinks& links, std::span<const std::uint32_t> devices,
            std::uint32_t pipelines);

  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t pipelines() const { return pipelines_; }
  std::uint32_t device(std::uint32_t rank, std::uint32_t pipeline) const {
    return devices_[std::size_t{pipeline} * ranks_ + rank];
  }
  const ClusterLinks& links() const { return links_; }

  /// Each of these adds the kind when it is new. Ranks are those of a pipeline.
  std::uint32_t message(std::uint32_t from, std::uint32_t to);
  std::uint32_t copy(std::uint32_t rank, bool is_out, bool is_disk);
  std::uint32_t add_shared(const CollectivePhase& phase);

  std::uint32_t kind_count() const { return static_cast<std::uint32_t>(kinds_.size()); }
  bool is_shared(std::uint32_t kind) const { return kinds_[kind].routes.size() == 1; }
  const Route& route(std::uint32_t kind, std::uint32_t pipeline) const {
    const auto& routes = kinds_[kind].routes;
    return routes[routes.size() == 1 ? 0 : pipeline];
  }

 private:
  struct Key {
    std::uint32_t from = 0;
    std::uint32_t to = 0;  // Of copies one of those below.
    bool operator==(const Key&) const = default;
  };
  struct Kind {
    Key key;
    std::vector<Route> routes;
  };
  static constexpr std::uint32_t kNobody = static_cast<std::uint32_t>(-1);

  template <typename MakeRoute>
  std::uint32_t find_or_add(Key key, const MakeRoute& make_route);

  const ClusterLinks& links_;
  std::span<const std::uint32_t> devices_;
  std::uint32_t pipelines_;
  std::uint32_t ranks_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<std::uint32_t>> kinds_of_;  // By rank that sends or copies.
};

/// Links that the same kinds of flows pass equally often are of one colour.
///
/// Where each kind passes links of the same colours in every pipeline, all pipelines behave alike:
/// suppose that they have done so until now, and that the rates of all flows rise together. Links
/// of one colour have the same flows in the same states, so they are full at the same moment, and
/// then the flows of the same kinds have their rates in all pipelines. So all transfers and waits
/// last equally long.
struct LinkColours {
  static constexpr std::uint32_t kNoColour = static_cast<std::uint32_t>(-1);

  bool are_alike = true;
  std::vector<std::uint32_t> colour_of;      ///< By link; none where nothing passes.
  std::vector<double> rates;                 ///< By colour.
  std::vector<std::vector<LinkUse>> routes;  ///< By kind over colours: all pipelines' streams.
};

LinkColours colours_of(const FlowTable& flows);

/// A step of how the gradients of a stage are summed, or become its new weights on the hosts.
struct SumPhase {
  std::uint32_t lane = 0;  ///< See UpdatePhase.
  std::uint32_t flow = 0;
  double bytes = 0.0;  ///< Of each stream.
  double least_seconds = 0.0;
};

/// Adds all that the action lists of a job move to the table. Returns the phases of sums by stage.
std::vector<std::vector<SumPhase>> add_flows(const Job& job, FlowTable& flows);

}  // namespace spillway::cluster
