#include "spillway/planner/job/job_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "spillway/planner/partition/model_chain.h"

namespace spillway::job {
namespace {

using planner_schedule::count_of;

/// Seconds of one micro-batch. A backward is taken as two halves, as the action lists have it.
struct LayerTimes {
  double forward = 0.0;
  double input = 0.0;   ///< The gradient of what comes in, for the layers before.
  double weight = 0.0;  ///< The gradients of the parameters.

  double backward() const { return input + weight; }
  double work() const { return forward + backward(); }
  LayerTimes& operator+=(const LayerTimes& other) {
    forward += other.forward;
    input += other.input;
    weight += other.weight;
    return *this;
  }
};

/// Least times of a chain, in any order of its branches and under any cuts: no
/// recomputation, no swaps, no messages.
class ChainTimes {
 public:
  ChainTimes(const partition::ModelChain& chain, double update_seconds)
      : may_reorder_(chain.may_reorder), may_be_last_(chain.layers.size(), false) {
    const partition::LayerIndex lead = partition::leading_frozen_layers(chain);
    double least_weight = std::numeric_limits<double>::infinity();
    for (partition::LayerIndex i = 0; i < chain.layers.size(); ++i) {
      const partition::ModelLayer& layer = chain.layers[i];
      LayerTimes times{layer.forward_seconds};
      // In another order any frozen one may lead.
      is_trained_.push_back(may_reorder_ ? !layer.is_frozen : i >= lead);
      if (is_trained_[i]) {
        times.input = times.weight = layer.backward_seconds / 2;
        trained_ += times;
      }
      // Where nothing is trained no optimizer runs.
      if (!layer.is_frozen && layer.parameters > Bytes(0)) update_seconds_ = update_seconds;
      if (may_reorder_ ? is_trained_[i] : i == lead)
        least_weight = std::min(least_weight, times.weight);
      layers_.push_back(times);
      all_ += times;
    }
    if (least_weight < std::numeric_limits<double>::infinity())
      last_weight_gradient_ = least_weight;
    if (may_reorder_) {
      find_orders(chain);
      return;
    }
    LayerTimes before;
    for (const LayerTimes& each : layers_) {
      before_.push_back(before);
      before += each;
    }
    may_be_last_.back() = true;
  }

  partition::LayerIndex size() const { return static_cast<partition::LayerIndex>(layers_.size()); }
  const LayerTimes& operator[](partition::LayerIndex layer) const { return layers_[layer]; }
  const LayerTimes& all() const { return all_; }
  /// Of the layers that run before it in every order.
  const LayerTimes& before(partition::LayerIndex layer) const { return before_[layer]; }
  /// Whether some order ends with it.
  bool may_be_last(partition::LayerIndex layer) const { return may_be_last_[layer]; }
  bool may_reorder() const { return may_reorder_; }
  /// Whether gradients reach it whatever the order: no layer that may lead frozen.
  bool is_trained(partition::LayerIndex layer) const { return is_trained_[layer]; }
  /// Of these layers.
  const LayerTimes& trained() const { return trained_; }
  /// Of the optimizer; 0 where nothing is trained.
  double update_seconds() const { return update_seconds_; }
  /// Of the first layer that has a backward, whichever that may be: it is left when the gradient
  /// has come through all layers.
  double last_weight_gradient() const { return last_weight_gradient_; }

 private:
  /// By what each layer waits for, directly or not.
  void find_orders(const partition::ModelChain& chain) {
    const std::size_t count = layers_.size();
    std::vector<std::vector<partition::LayerIndex>> inputs(count);
    may_be_last_.assign(count, true);
    const auto add = [&](partition::LayerIndex before, partition::LayerIndex after) {
      inputs[after].push_back(before);
      may_be_last_[before] = false;
    };
    for (const partition::BorderTensor& border : chain.borders)
      for (const partition::LayerIndex consumer : border.consumers) add(border.producer, consumer);
    for (const partition::LayerDependence& each : chain.dependences) add(each.before, each.after);
    std::vector<std::vector<bool>> waits_for(count, std::vector<bool>(count, false));
    for (std::size_t i = 0; i < count; ++i) {
      for (const partition::LayerIndex input : inputs[i]) {
        // Edges lead to larger numbers, so all that an input waits for is known by now.
        waits_for[i][input] = true;
        for (partition::LayerIndex j = 0; j < input; ++j)
          if (waits_for[input][j]) waits_for[i][j] = true;
      }
      LayerTimes before;
      for (std::size_t j = 0; j < i; ++j)
        if (waits_for[i][j]) before += layers_[j];
      before_.push_back(before);
    }
  }

  bool may_reorder_;
  double update_seconds_ = 0.0;
  double last_weight_gradient_ = 0.0;
  LayerTimes all_;
  LayerTimes trained_;
  std::vector<LayerTimes> layers_;
  std::vector<LayerTimes> before_;
  std::vector<bool> may_be_last_;
  std::vector<bool> is_trained_;
};

/// One pipeline of `ranks`, with its micro-batches.
struct Pipeline {
  std::uint32_t ranks = 1;
  std::uint32_t micro_batches = 1;
};

/// Of all work, of one micro-batch on its way, and of each layer on the rank that has most of its
/// micro-batches: nothing comes to it before the layers in front have run once, and gradients have
/// a way to go when it is done.
double bound_of_layers(const ChainTimes& chain, const planner_schedule::ScheduleTraits& traits,
                       const Pipeline& pipeline) {
  const std::uint32_t copies = std::min(pipeline.ranks, traits.copies);
  // Some copy has at least its even share of the micro-batches.
  const double turns = (pipeline.micro_batches + copies - 1) / copies;
  double bound = (chain.all().work() * pipeline.micro_batches + chain.update_seconds()) /
                 static_cast<double>(pipeline.ranks);
  const auto back = [&](const LayerTimes& times) {
    return traits.is_whole ? times.backward() : times.input;
  };
  bound = std::max(bound, chain.all().forward + back(chain.all()) +
                              (traits.is_whole ? 0.0 : chain.last_weight_gradient()));
  for (partition::LayerIndex i = 0; i < chain.size(); ++i) {
    const LayerTimes& layer = chain[i];
    const LayerTimes& before = chain.before(i);
    const double until_gradients = turns * (layer.forward + back(layer)) + back(before);
    bound = std::max(bound, before.forward + std::max(turns * layer.work(), until_gradients));
  }
  return bound;
}

/// One stage on each rank, which all micro-batches pass: stage k is not done before m times its own
/// time, and once that of the stages before it. So with T to the end, what is left behind it is at
/// least (1 - 1/m) of what was left behind the one before; all is done by the last one.
double bound_of_slopes(const ChainTimes& chain, const Pipeline& pipeline) {
  const double left = std::pow(1.0 - 1.0 / pipeline.micro_batches, pipeline.ranks);
  return chain.all().work() / (1.0 - left);
}

/// The same for the layers as they are: whether stages that are as long as such a step lets them be
/// reach the end. `is_whole`: a stage waits for forwards and leaves time for backwards before it.
bool reaches_end(const ChainTimes& chain, bool is_whole, const Pipeline& pipeline, double step) {
  LayerTimes before;
  partition::LayerIndex next = 0;
  for (std::uint32_t stage = 0; stage < pipeline.ranks && next < chain.size(); ++stage) {
    const double waits = is_whole ? before.work() : before.forward;
    double own = 0.0;
    while (next < chain.size() &&
           waits + pipeline.micro_batches * (own + chain[next].work()) <= step) {
      own += chain[next].work();
      before += chain[next++];
    }
  }
  return next == chain.size();
}

double bound_of_stages(const ChainTimes& chain, bool is_whole, const Pipeline& pipeline) {
  double low = 0.0;
  double high = chain.all().work() * pipeline.micro_batches * (1.0 + 1e-9);
  // Always the lower end is given, so what is left of the range never makes a bound wrong.
  for (int halvings = 0; halvings < 40; ++halvings) {
    const double middle = (low + high) / 2;
    (reaches_end(chain, is_whole, pipeline, middle) ? high : low) = middle;
  }
  return low;
}

/// One micro-batch on its way, and the others on the slowest stage.
double phase(double all, double slowest, double micro_batches) {
  return all + (micro_batches - 1.0) * slowest;
}

/// All forwards of a pass, then all its backwards. The next pass comes to a stage behind the one
/// before; where stages are frozen, only to those that are trained.
double bound_of_alternation(const ChainTimes& chain, planner_schedule::Alternation alternation,
                            std::uint32_t passes, const Pipeline& pipeline) {
  const double ranks = pipeline.ranks;
  double forward = chain.all().forward / ranks;
  double trained_forward = chain.trained().forward / ranks;
  double backward = chain.all().backward() / ranks;
  double last_forward = chain.all().forward;
  const bool has_frozen = chain.trained().forward < chain.all().forward;
  for (partition::LayerIndex i = 0; i < chain.size(); ++i) {
    forward = std::max(forward, chain[i].forward);
    backward = std::max(backward, chain[i].backward());
    if (chain.is_trained(i)) trained_forward = std::max(trained_forward, chain[i].forward);
    if (has_frozen || chain.may_be_last(i)) last_forward = std::min(last_forward, chain[i].forward);
  }
  const double own = pipeline.micro_batches / passes;
  const double first = phase(chain.all().forward, forward, own);
  const double backwards = passes * phase(chain.all().backward(), backward, own);
  const double next = alternation == planner_schedule::Alternation::kApart
                          ? phase(chain.trained().forward, trained_forward, own)
                          : own * last_forward;
  return first + backwards + (passes - 1.0) * next;
}

JobRequest smallest_micro_batches(const JobRequest& request) {
  return with_micro_batches(request, most_micro_batches(request));
}

/// Of these parameters of a layer. Gradients and states of the optimizer stay whole.
double weight_bytes(const partition::ModelLayer& layer, Bytes parameters) {
  return count_of(parameters) * (layer.is_frozen ? 1.0 : layer.static_ratio);
}

/// Of a rank that holds so much of the chain.
Bytes memory_of(const JobRequest& request, double bytes) {
  // Stages round each of their figures to whole bytes.
  const double rounding = 4.0 * static_cast<double>(request.chain.layers.size());
  return request.reserved + Bytes(static_cast<std::uint64_t>(std::max(0.0, bytes - rounding)));
}

}  // namespace

double pipeline_bound(const JobRequest& request, const JobChoice& choice) {
  const JobRequest asked = request_for(request, choice);
  const planner_schedule::ScheduleTraits& traits = choice.generator->traits;
  const Pipeline pipeline{asked.ranks / asked.data_parallel,
                          asked.micro_batches / asked.data_parallel};
  const planner_schedule::ScheduleRequest schedule_request = schedule_request_for(
      *choice.generator, choice.variant, pipeline.ranks, pipeline.micro_batches);
  const ChainTimes chain(asked.chain, asked.update_seconds);
  double bound = bound_of_layers(chain, traits, pipeline);
  if (traits.alternation != planner_schedule::Alternation::kNone) {
    std::uint32_t passes = schedule_request.replicas;
    if (passes == 0) passes = traits.passes != 0 ? traits.passes : pipeline.micro_batches;
    passes = std::min(passes, pipeline.micro_batches);
    bound = std::max(bound, bound_of_alternation(chain, traits.alternation, passes, pipeline));
  }
  const bool is_plain = traits.copies == 1 &&
                        choice.generator->stages_per_rank == planner_schedule::StagesPerRank::kOne;
  if (is_plain && traits.is_whole) bound = std::max(bound, bound_of_slopes(chain, pipeline));
  if (is_plain && !chain.may_reorder())
    bound = std::max(bound, bound_of_stages(chain, traits.is_whole, pipeline));
  // On the first rank that trains, each micro-batch is in flight until it has come back.
  if (traits.has_slots)
    bound =
        std::max(bound, chain.trained().work() * pipeline.micro_batches / schedule_request.slots);
  return bound;
}

Bytes layer_memory_bound(const JobRequest& request) {
  const JobRequest asked = smallest_micro_batches(request);
  double most = 0.0;
  for (const partition::ModelLayer& layer : asked.chain.layers)
    most = std::max(most, weight_bytes(layer, layer.parameters) + count_of(layer.buffers) +
                              count_of(layer.working_peak));
  return memory_of(asked, most);
}

Bytes memory_bound(const JobRequest& request) {
  // Of two stages on a rank, the weights of one may be on the host. Frozen ones never leave.
  const bool may_park = !request.swap_rate.is_none();
  const auto least_bytes = [&](const partition::ModelLayer& layer, Bytes parameters) {
    return weight_bytes(layer, parameters) -
           (may_park && !layer.is_frozen ? count_of(parameters) : 0.0);
  };
  const std::vector<partition::ModelLayer>& layers = request.chain.layers;
  double all = 0.0;
  for (const partition::ModelLayer& layer : layers)
    all += least_bytes(layer, layer.parameters) + count_of(layer.buffers);
  for (const partition::TiedWeights& tie : request.chain.ties)  // Once, in layers of one stage.
    all -= least_bytes(layers[tie.layers.front()], tie.bytes * (tie.layers.size() - 1));
  return std::max(layer_memory_bound(request), memory_of(request, all / request.ranks));
}

double job_bound(const JobRequest& request) {
  if (request.schedule != kAnySchedule)
    return pipeline_bound(request, {&planner_schedule::schedule_generator_named(request.schedule),
                                    std::max(1U, request.data_parallel), request.variant});
  // The way through layers grows with micro-batches, and work is never shared more evenly over
  // ranks by larger ones.
  const JobRequest asked = smallest_micro_batches(request);
  const ChainTimes chain(asked.chain, asked.update_seconds);
  const std::uint32_t most = std::gcd(asked.ranks, asked.micro_batches);
  double bound = std::numeric_limits<double>::infinity();
  for (std::uint32_t data_parallel = 1; data_parallel <= most; ++data_parallel) {
    if (request.data_parallel != 0 ? data_parallel != request.data_parallel
                                   : most % data_parallel != 0)
      continue;
    const Pipeline pipeline{asked.ranks / data_parallel, asked.micro_batches / data_parallel};
    bound = std::min(bound, bound_of_layers(chain, planner_schedule::ScheduleTraits{}, pipeline));
  }
  return bound;
}

}  // namespace spillway::job
