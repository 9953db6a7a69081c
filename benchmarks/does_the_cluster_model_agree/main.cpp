// Do flows take as long in the cluster model as in SimGrid's? Prints the table of the README.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/cluster/collectives.h"
#include "spillway/planner/cluster/fair_flows.h"

namespace {

using namespace spillway::cluster;
using namespace spillway::planner;
namespace s4u = simgrid::s4u;

struct Transfer {
  std::uint32_t from = 0;  // Devices.
  std::uint32_t to = 0;
  double start = 0.0;
  double bytes = 0.0;
};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<double> our_ends(const ClusterLinks& links, const std::vector<Transfer>& transfers) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  FairFlows flows(links.rates());
  std::vector<Route> routes;
  std::vector<std::uint32_t> order;
  for (const Transfer& each : transfers) {
    order.push_back(static_cast<std::uint32_t>(routes.size()));
    routes.push_back(links.route({each.from}, {each.to}));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return transfers[a].start < transfers[b].start;
  });
  std::vector<double> ends(transfers.size());
  std::vector<std::uint32_t> ended;
  std::size_t next = 0;
  double now = 0.0;
  while (true) {
    for (; next < order.size() && transfers[order[next]].start <= now; ++next)
      flows.start(routes[order[next]].uses, transfers[order[next]].bytes, order[next], now);
    flows.settle(now);
    now =
        std::min(next < order.size() ? transfers[order[next]].start : kInfinite, flows.next_end());
    if (now == kInfinite) return ends;
    ended.clear();
    flows.take_ended(now, ended);
    for (const std::uint32_t tag : ended) ends[tag] = now;
  }
}

/// The links of the cluster one by one, and a route for each pair that sends.
class Platform {
 public:
  Platform(const ClusterLinks& links, const std::vector<Transfer>& transfers)
      : zone_(s4u::create_full_zone("cluster")) {
    std::vector<s4u::Link*> all;
    for (std::uint32_t link = 0; link < links.size(); ++link)
      all.push_back(zone_->create_link(spillway::message("l{}", link), links.rate(link))
                        ->set_latency(0.0)
                        ->seal());
    std::map<std::pair<std::uint32_t, std::uint32_t>, bool> known;
    for (const Transfer& each : transfers) {
      if (!known.emplace(std::pair{each.from, each.to}, true).second) continue;
      std::vector<s4u::LinkInRoute> way;
      for (const LinkUse& use : links.route({each.from}, {each.to}).uses)
        way.emplace_back(all[use.link]);
      zone_->add_route(host(each.from)->get_netpoint(), host(each.to)->get_netpoint(), nullptr,
                       nullptr, way, /*symmetrical=*/false);
    }
    zone_->seal();
  }

  s4u::Host* host(std::uint32_t device) {
    s4u::Host*& host = hosts_[device];
    if (!host) host = zone_->create_host(spillway::message("h{}", device), 1e9)->seal();
    return host;
  }

 private:
  s4u::NetZone* zone_;
  std::map<std::uint32_t, s4u::Host*> hosts_;
};

std::vector<double> their_ends(s4u::Engine& engine, Platform& platform,
                               const std::vector<Transfer>& transfers) {
  std::vector<double> ends(transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& each = transfers[i];
    s4u::Host* const from = platform.host(each.from);
    s4u::Host* const to = platform.host(each.to);
    s4u::Actor::create(spillway::message("a{}", i), from, [=, &ends] {
      s4u::this_actor::sleep_until(each.start);
      s4u::Comm::sendto(from, to, static_cast<std::uint64_t>(each.bytes));
      ends[i] = s4u::Engine::get_clock();
    });
  }
  engine.run();
  return ends;
}

/// Anybody to anybody, at any time.
std::vector<Transfer> random_transfers(std::uint32_t devices, std::size_t count) {
  std::mt19937_64 random(4);
  std::vector<Transfer> transfers;
  while (transfers.size() < count) {
    const auto from = static_cast<std::uint32_t>(random() % devices);
    const auto to = static_cast<std::uint32_t>(random() % devices);
    const double start = static_cast<double>(random() % 1000) * 1e-4;
    if (from != to)
      transfers.push_back({from, to, start, 1e6 * static_cast<double>(1 + random() % 200)});
  }
  return transfers;
}

/// Of a ring over all devices in order, everything that an all-reduce sends to the neighbour.
std::vector<Transfer> ring_transfers(std::uint32_t devices, double bytes) {
  std::vector<Transfer> transfers;
  for (std::uint32_t i = 0; i < devices; ++i)
    transfers.push_back({i, (i + 1) % devices, 0.0, 2.0 * (devices - 1) / devices * bytes});
  return transfers;
}

/// The neighbours of pipelines of eight whose stages are on different nodes, in a wave.
std::vector<Transfer> pipeline_transfers(std::uint32_t devices) {
  std::vector<Transfer> transfers;
  const std::uint32_t pipelines = devices / 8;
  for (std::uint32_t stage = 0; stage + 1 < 8; ++stage)
    for (std::uint32_t pipeline = 0; pipeline < pipelines; ++pipeline)
      for (std::uint32_t turn = 0; turn < 4; ++turn)
        transfers.push_back({stage * pipelines + pipeline, (stage + 1) * pipelines + pipeline,
                             2e-3 * (stage + turn) + 1e-5 * pipeline, 32e6});
  return transfers;
}

Cluster read_cluster(const std::string& path, std::uint32_t nodes) {
  std::ifstream file(path);
  if (!file) throw spillway::IoError("{} cannot be read (bindings/clusters has some)", path);
  std::ostringstream text;
  text << file.rdbuf();
  Cluster cluster = parse_cluster(text.str(), path);
  cluster.nodes = nodes;
  return cluster;
}

/// An all-reduce of 100 MB message by message: in each round a member sends the block that it got
/// in the round before to the next one, in as many rings as a node has devices. Prints how long it
/// takes, there and as the collective of the model.
void compare_rounds(s4u::Engine& engine, const ClusterLinks& links) {
  constexpr double kBytes = 100e6;
  const std::uint32_t devices = links.cluster().device_count();
  const std::uint32_t group = links.cluster().node.devices;
  const std::uint32_t rounds = 2 * (devices - 1);
  std::vector<std::vector<std::uint32_t>> rings(group);
  std::vector<Transfer> pairs;
  std::vector<Endpoint> members;
  for (std::uint32_t ring = 0; ring < group; ++ring) {
    for (std::uint32_t node = 0; node < devices / group; ++node)
      for (std::uint32_t i = 0; i < group; ++i)
        rings[ring].push_back(node * group + (ring + node * (group - 1) + i) % group);
    for (std::uint32_t i = 0; i < devices; ++i)
      pairs.push_back({rings[ring][i], rings[ring][(i + 1) % devices], 0.0, 0.0});
  }
  for (std::uint32_t i = 0; i < devices; ++i) members.push_back({i});
  Platform platform(links, pairs);
  const auto block = static_cast<std::uint64_t>(kBytes / devices / group);
  for (std::uint32_t ring = 0; ring < group; ++ring)
    for (std::uint32_t i = 0; i < devices; ++i) {
      const std::uint32_t before = rings[ring][(i + devices - 1) % devices];
      const double latency = links.route({before}, {rings[ring][i]}).latency_seconds;
      s4u::Mailbox* const in = s4u::Mailbox::by_name(spillway::message("{}-{}", ring, i));
      s4u::Mailbox* const out =
          s4u::Mailbox::by_name(spillway::message("{}-{}", ring, (i + 1) % devices));
      s4u::Actor::create(spillway::message("m{}-{}", ring, i), platform.host(rings[ring][i]), [=] {
        static int token = 0;
        std::vector<int*> got(rounds);
        std::vector<s4u::CommPtr> coming(rounds);
        // As many as NCCL has slots in a channel.
        constexpr std::uint32_t kAhead = 8;
        for (std::uint32_t first = 0; first < std::min(kAhead, rounds); ++first)
          coming[first] = in->get_async<int>(&got[first]);
        for (std::uint32_t round = 0; round < rounds; ++round) {
          const s4u::CommPtr sent = out->put_async(&token, block);
          coming[round]->wait();
          // Latency comes behind the last byte, beside the next block.
          s4u::this_actor::sleep_until(coming[round]->get_finish_time() + latency);
          coming[round].reset();
          if (round + kAhead < rounds)
            coming[round + kAhead] = in->get_async<int>(&got[round + kAhead]);
          sent->wait();
        }
      });
    }
  engine.run();
  const Collective ring =
      make_collective(CollectiveKind::kAllReduce, CollectiveAlgorithm::kRing, links, members);
  const double ours = seconds_alone(ring, links, kBytes);
  const double theirs = s4u::Engine::get_clock();
  std::printf("| %s | %u | %u | %.6f | %.6f | %+.2f %% |\n", links.cluster().name.c_str(), devices,
              rounds * devices * group, ours, theirs, 100.0 * (ours / theirs - 1.0));
}

std::vector<Transfer> transfers_named(const std::string& scenario, std::uint32_t devices) {
  if (scenario == "random") return random_transfers(devices, 4 * devices);
  if (scenario == "ring") return ring_transfers(devices, 100e6);
  if (scenario == "pipelines") return pipeline_transfers(devices);
  throw spillway::ConfigError("there is no scenario '{}' (give random, ring, pipelines or rounds)",
                              scenario);
}

std::uint32_t count_of_nodes(const std::string& text) {
  constexpr std::uint32_t kMostNodes = 4096;
  std::uint32_t nodes = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, nodes);
  if (status != std::errc() || stop != end || nodes < 2 || nodes > kMostNodes)
    throw spillway::ConfigError("'{}' is no number of nodes from 2 to {}", text, kMostNodes);
  return nodes;
}

void compare(s4u::Engine& engine, const std::string& path, const std::string& nodes,
             const std::string& scenario) {
  // Plain max-min: no window of TCP, no share of acknowledgements, no correction of rates.
  engine.set_config("network/model:CM02");
  engine.set_config("network/TCP-gamma:0");
  engine.set_config("network/crosstraffic:0");
  engine.set_config("network/weight-S:0");
  const ClusterLinks links(read_cluster(path, count_of_nodes(nodes)));
  const std::uint32_t devices = links.cluster().device_count();
  if (scenario == "rounds") return compare_rounds(engine, links);
  const std::vector<Transfer> transfers = transfers_named(scenario, devices);
  Platform platform(links, transfers);
  const double begin = wall_seconds();
  const std::vector<double> ours = our_ends(links, transfers);
  const double middle = wall_seconds();
  const std::vector<double> theirs = their_ends(engine, platform, transfers);
  const double end = wall_seconds();
  double worst = 0.0;
  double sum = 0.0;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const double difference = std::abs(ours[i] - theirs[i]) / (theirs[i] - transfers[i].start);
    worst = std::max(worst, difference);
    sum += difference;
  }
  std::printf("| %s | %u | %s | %zu | %.6f | %.6f | %.1e | %.1e | %.2f | %.2f |\n",
              links.cluster().name.c_str(), devices, scenario.c_str(), transfers.size(),
              *std::max_element(ours.begin(), ours.end()),
              *std::max_element(theirs.begin(), theirs.end()), worst,
              sum / static_cast<double>(transfers.size()), middle - begin, end - middle);
}

}  // namespace

/// One scenario per process, since SimGrid has one engine: FILE NODES random|ring|pipelines|rounds.
int main(int count, char** arguments) {
  s4u::Engine engine(&count, arguments);
  if (count != 4) {
    std::fprintf(stderr, "usage: %s CLUSTER.json NODES random|ring|pipelines|rounds\n",
                 arguments[0]);
    return 2;
  }
  try {
    compare(engine, arguments[1], arguments[2], arguments[3]);
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
