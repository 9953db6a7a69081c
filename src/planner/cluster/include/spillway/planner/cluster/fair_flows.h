#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "spillway/planner/cluster/cluster_links.h"

namespace spillway::cluster {

/// Transfers that share links fairly: at any moment no flow could be faster without slowing one
/// down that is not faster than it (max-min fairness; a stream on a link counts as one flow).
///
///     Σ streams · rate ≤ link rate,  each flow has a link that is full and on which none is faster
///
/// Rates are recomputed after starts and ends, and only for flows that these can reach: over
/// links on which flows hinder each other. A link whose flows could all run as fast as their other
/// links allow hinders nobody.
class FairFlows {
 public:
  /// Links by number; rates above 0.
  explicit FairFlows(std::vector<double> rates);

  /// Starts a flow at the time `now` (seconds) that carries `bytes` per stream. `route` must live
  /// until the flow has ended; `tag` comes back when it does. A flow without links ends at once.
  void start(std::span<const LinkUse> route, double bytes, std::uint32_t tag, double now);

  /// Brings all rates up to date. To be called once after all starts and ends of one moment.
  void settle(double now);

  /// When the next flow ends; infinite without flows. Valid after `settle`.
  double next_end();

  /// Takes the flows that end at `now`, which is what `next_end` said or earlier; adds their tags,
  /// in the order in which they were started where they end at the same moment.
  void take_ended(double now, std::vector<std::uint32_t>& tags);

  /// Bytes of ended flows that have passed a link.
  double carried(std::uint32_t link) const { return links_[link].carried; }

 private:
  using FlowId = std::uint32_t;
  struct Flow {
    std::span<const LinkUse> route;
    std::vector<std::uint32_t> places;  // Of it in the list of each link of its route.
    double bytes = 0.0;                 // In all, per stream.
    double left = 0.0;                  // At `since`.
    double since = 0.0;
    double rate = 0.0;
    double most = 0.0;  // What it reaches alone.
    std::uint64_t number = 0;
    std::uint32_t version = 0;  // Of its end; those known before are void.
    std::uint32_t tag = 0;
    std::uint32_t mark = 0;
    bool is_fixed = false;
    bool is_alive = false;
  };
  struct Passage {
    FlowId flow = 0;
    std::uint32_t slot = 0;  // In its route.
  };
  struct Link {
    double rate = 0.0;
    double wanted = 0.0;  // What its flows would carry, each of them alone.
    double carried = 0.0;
    double left = 0.0;     // While rates are computed.
    double streams = 0.0;  // Of flows without a rate, then.
    std::uint32_t mark = 0;
    bool is_touched = false;
    std::vector<Passage> flows;
  };
  struct End {
    double seconds = 0.0;
    std::uint64_t number = 0;
    FlowId flow = 0;
    std::uint32_t version = 0;
    bool operator>(const End& other) const {
      return seconds != other.seconds ? seconds > other.seconds : number > other.number;
    }
  };

  bool hinders(const Link& link) const;
  void touch(std::uint32_t link);
  void remove(FlowId id);
  void reach(FlowId id);
  void collect();
  void fill(double now);
  void set_rate(FlowId id, double rate, double now);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowId> free_;
  std::vector<FlowId> changed_;         // Started since the rates were computed.
  std::vector<std::uint32_t> touched_;  // Links on which something changed, and flows hinder.
  std::vector<FlowId> reached_;
  std::vector<std::uint32_t> reached_links_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::uint32_t round_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace spillway::cluster
