#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "flow_table.h"
#include "spillway/planner/cluster/fair_flows.h"
#include "spillway/planner/schedule/schedule_links.h"

namespace spillway::cluster {

/// The route of a flow: a span that lives as long as the links, and its latency.
struct FlowRoute {
  std::span<const LinkUse> uses;
  double latency_seconds = 0.0;
};

/// The links of a cluster, which all flows share fairly. Messages of a pair of ranks, copies of a
/// rank in one direction, and sums of a rank go one after the other; latency comes on top.
class FairLinks final : public planner_schedule::ScheduleLinks {
 public:
  /// By number in the table, and pipeline.
  using RouteOf = std::function<FlowRoute(std::uint32_t flow, std::uint32_t pipeline)>;

  /// The first `pipelines` of them, with all of their flows in the table, which must outlive it.
  /// `rates` are of the links that routes name.
  FairLinks(FlowTable& flows, std::vector<std::vector<SumPhase>> phases, bool copies_to_disk,
            std::uint32_t pipelines, std::vector<double> rates, RouteOf route_of);

  Transfer send(std::uint32_t from, std::uint32_t to, Bytes size, double now) override;
  Transfer copy(std::uint32_t rank, bool is_out, Bytes size, double since, Id after) override;
  Id join(std::uint32_t rank, std::uint32_t stage) override;
  Transfer sum(std::uint32_t stage, std::span<const std::uint32_t> members, double now) override;
  double next_end(double now) override;
  void take_ended(double now, std::vector<Id>& ended) override;

  /// Bytes that have passed a link.
  double carried(std::uint32_t link) const { return shares_.carried(link); }

 private:
  struct Queue {
    std::uint32_t rank = 0;
    std::uint32_t to = 0;  // Rank, or one of those below.
    std::uint32_t flow = 0;
    bool is_busy = false;
    std::vector<Id> waiting;
  };
  static constexpr std::uint32_t kOut = static_cast<std::uint32_t>(-1);
  static constexpr std::uint32_t kIn = static_cast<std::uint32_t>(-2);

  struct Asked {
    Queue* queue = nullptr;   // None for a sum.
    std::uint32_t stage = 0;  // Of a sum.
    Id after = kNone;
    double bytes = 0.0;
    bool is_over = false;
  };
  struct Sum {
    Id id = kNone;  // Of the one that ranks come to, or that goes on.
    std::vector<std::uint32_t> ranks;
    std::size_t phase = 0;
    bool is_ready = false;  // For that phase, which may wait for sums before it.
    double started = 0.0;   // That phase.
  };
  using Arrival = std::pair<double, Id>;

  Queue& queue_of(std::uint32_t rank, std::uint32_t to);
  Id add(const Asked& asked);
  Transfer ask(Queue& queue, Bytes size, Id after);
  void go_on(Queue& queue);
  void go_on_with_copies(std::uint32_t rank);
  void begin_phase(std::uint32_t stage);
  void end_flow(Id id);
  void leave_lane(std::uint32_t stage);
  void arrive(Id id);
  void end_phase(std::uint32_t stage);
  void end_sum(std::uint32_t stage);

  FlowTable& flows_;
  std::vector<std::vector<SumPhase>> phases_;  // By stage.
  bool copies_to_disk_;
  std::uint32_t pipelines_;
  RouteOf route_of_;
  FairFlows shares_;
  std::deque<Queue> queues_;
  std::vector<std::vector<Queue*>> queues_of_;  // By rank that sends or copies.
  std::vector<Sum> sums_;                       // By stage.
  /// By rank and lane: stages whose sums it has come to, in this order.
  std::vector<std::vector<std::vector<std::uint32_t>>> lanes_;
  std::vector<Asked> asked_;  // By number.
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  std::vector<Id> ended_;  // Not taken yet.
  double now_ = 0.0;
};

}  // namespace spillway::cluster
