// Steps of data-parallel training on the clock of ranks in one process, one JSON line each:
//   what_does_the_exchange_hide NETWORK RANKS GBIT_PER_S
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "spillway/allreduce/sum.h"
#include "spillway/transport/in_process.h"

namespace spillway::allreduce {
namespace {

/// Bytes are so much fewer and links so much slower, so that all ranks fit into one process.
constexpr double kScale = 1024;
constexpr Bytes kPiece = 1_KiB;  // 1 MiB.
constexpr Duration kLatency = std::chrono::microseconds(10);
constexpr double kUpdateRate = 20e9;  // Bytes of gradients.

struct Layer {
  double backward_ms = 0;
  double parameters = 0;
};
using Network = std::vector<Layer>;

/// 8 sequences of 1,024 tokens on 40 TFLOP/s; a weight takes 4 operations of a token.
constexpr double kGptMsPerWeight = 8192 * 4 / 40e12 * 1e3;

/// 24 blocks of width 1,024, and 50,257 words. With tied weights the gradient of the table is final
/// only where the backward ends.
Network gpt(bool is_tied) {
  constexpr double kBlock = 12.6e6;
  constexpr double kTable = 50257.0 * 1024;
  Network network{{1, kTable}};
  for (int i = 0; i < 24; ++i) network.push_back({kBlock * kGptMsPerWeight, kBlock});
  network.push_back({kTable * kGptMsPerWeight, is_tied ? 2048 : kTable});
  return network;
}

/// VGG-16 on 32 images and 10 TFLOP/s, from its multiplications in 10^9 and its weights in 10^6.
Network vgg16() {
  const double published[][2] = {{.087, .002}, {1.85, .037},   {.925, .074},  {1.85, .148},
                                 {.925, .295}, {1.85, .590},   {1.85, .590},  {.925, 1.18},
                                 {1.85, 2.36}, {1.85, 2.36},   {.463, 2.36},  {.463, 2.36},
                                 {.463, 2.36}, {.103, 102.76}, {.017, 16.78}, {.004, 4.1}};
  Network network;
  for (const auto& [multiplications, weights] : published)
    network.push_back({multiplications * 1e9 * 4 * 32 / 10e12 * 1e3, weights * 1e6});
  return network;
}

/// With as many whole elements in each layer when it is scaled.
Network scalable(Network network) {
  for (Layer& layer : network)
    layer.parameters = kScale * std::max(1.0, std::floor(layer.parameters / kScale));
  return network;
}

Duration milliseconds(double count) {
  return Duration(static_cast<Duration::rep>(std::llround(count * 1e6)));
}

enum class Way { kAfterBackward, kExchangePhased, kBothPhased };

/// What the threads of a rank tell one another: layers whose gradients are final, and summed.
struct Inbox {
  std::unique_ptr<transport::Notifier> notifier;
  std::deque<std::size_t> layers;

  void put(std::size_t layer) {
    layers.push_back(layer);
    notifier->notify();
  }
};

/// A rank: a thread for the backward, one for sums, one for updates.
struct RankStep {
  transport::InProcessRanks& job;
  const Network& network;
  Way way;
  SumOptions options;
  std::vector<std::vector<std::byte>> gradients{};
  Inbox finals{};
  Inbox sums{};

  Duration update_of(std::size_t layer) const {
    return milliseconds(network[layer].parameters * 4 / kUpdateRate * 1e3);
  }

  void run_backward() {
    for (std::size_t i = network.size(); i-- > 0;) {
      job.work(milliseconds(network[i].backward_ms));
      finals.put(i);
    }
  }

  /// Where `is_phased`, each layer on its own as soon as it comes; else once all have come.
  void for_each_group(Inbox& inbox, bool is_phased, std::size_t& taken,
                      const std::function<void(std::vector<std::size_t>)>& take) {
    const std::size_t all = network.size();
    while (!inbox.layers.empty() && (is_phased || inbox.layers.size() == all)) {
      const auto last = is_phased ? inbox.layers.begin() + 1 : inbox.layers.end();
      std::vector<std::size_t> group(inbox.layers.begin(), last);
      inbox.layers.erase(inbox.layers.begin(), last);
      taken += group.size();
      take(std::move(group));
    }
  }

  void run_updates() {
    for (std::size_t taken = 0; taken < network.size();) {
      for_each_group(sums, way == Way::kBothPhased, taken, [&](std::vector<std::size_t> group) {
        for (const std::size_t layer : group) job.work(update_of(layer));
      });
      if (taken < network.size()) sums.notifier->wait();
    }
  }

  void run_sums(transport::Transport& group) {
    std::vector<std::pair<std::unique_ptr<Sum>, std::vector<std::size_t>>> under_way;
    for (std::size_t taken = 0; taken < network.size() || !under_way.empty();) {
      for_each_group(
          finals, way != Way::kAfterBackward, taken, [&](std::vector<std::size_t> layers) {
            std::vector<std::span<std::byte>> parts;
            for (const std::size_t layer : layers) parts.emplace_back(gradients[layer]);
            under_way.emplace_back(
                begin_sum(group, layers.front(), Element::kFloat32, parts, options), layers);
          });
      std::erase_if(under_way, [&](const auto& one) {
        if (!one.first->advance()) return false;
        for (const std::size_t layer : one.second) sums.put(layer);
        return true;
      });
      if (taken < network.size() || !under_way.empty()) finals.notifier->wait();
    }
  }
};

double step_ms(const Network& network, std::uint32_t ranks, double bytes_per_second, Order order,
               Way way) {
  // The ordered sum sends to all at once, over one card.
  const double cards = order == Order::kOrdered ? ranks - 1 : 1;
  transport::InProcessRanks job(
      {.ranks = ranks, .latency = kLatency, .bytes_per_second = bytes_per_second / kScale / cards});
  std::vector<RankStep> steps;
  for (std::uint32_t i = 0; i < ranks; ++i) {
    steps.push_back({job, network, way, {.order = order, .piece = kPiece, .small = kPiece}});
    for (const Layer& layer : network)
      steps.back().gradients.emplace_back(static_cast<std::size_t>(layer.parameters / kScale) * 4);
  }
  job.run([&](transport::Transport& group) {
    RankStep& step = steps[group.rank().value()];
    step.finals.notifier = group.make_notifier(transport::Stream::kSums);
    step.sums.notifier = group.make_notifier(transport::Stream::kRequests);
    job.start([&step] { step.run_backward(); });
    job.start([&step] { step.run_updates(); });
    step.run_sums(group);
  });
  return static_cast<double>(job.clock().now().time_since_epoch().count()) / 1e6;
}

/// No exchange ends before what is left to send after each layer has been sent, at the rate of a
/// rank's card; the layer whose gradient is final last is updated after that.
double bound_ms(const Network& network, std::uint32_t ranks, double bytes_per_second) {
  const double ms_per_weight = 4e3 * 2 * (ranks - 1) / ranks / bytes_per_second;
  double final_at = 0, left = 0, bound = 0;
  for (const Layer& layer : network) left += layer.parameters;
  for (auto layer = network.rbegin(); layer != network.rend(); ++layer) {
    final_at += layer->backward_ms;
    bound = std::max(bound, final_at + left * ms_per_weight);
    left -= layer->parameters;
  }
  return bound + network.front().parameters * 4 / kUpdateRate * 1e3;
}

int run(const std::string& name, std::uint32_t ranks, double gbit_per_s) {
  const std::map<std::string, Network> networks{
      {"gpt", gpt(false)}, {"gpt-tied", gpt(true)}, {"vgg16", vgg16()}};
  const Network network = scalable(networks.at(name));
  const double rate = gbit_per_s / 8 * 1e9;
  const double backward =
      std::accumulate(network.begin(), network.end(), 0.0,
                      [](double sum, const Layer& layer) { return sum + layer.backward_ms; });
  std::printf(R"({"network": "%s", "ranks": %u, "gbit_per_s": %g, "backward": %.3f, "bound": %.3f)",
              name.c_str(), ranks, gbit_per_s, backward, bound_ms(network, ranks, rate));
  for (const auto& [order, of_order] :
       {std::pair{Order::kOrdered, "ordered"}, {Order::kFast, "fast"}})
    for (const auto& [way, of_way] : {std::pair{Way::kAfterBackward, "after"},
                                      {Way::kExchangePhased, "exchange"},
                                      {Way::kBothPhased, "both"}})
      std::printf(R"(, "%s_%s": %.3f)", of_order, of_way,
                  step_ms(network, ranks, rate, order, way));
  std::puts("}");
  return 0;
}

}  // namespace
}  // namespace spillway::allreduce

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s gpt|gpt-tied|vgg16 RANKS GBIT_PER_S\n", argv[0]);
    return 2;
  }
  return spillway::allreduce::run(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])),
                                  std::atof(argv[3]));
}
