#include "synthetic_trainers.h"

#include <algorithm>

namespace spillway::testing {
namespace {

using Input = PagingSimulation::Input;

constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

/// A parameter with its gradient and Adam's moments, which come into being when first needed.
struct Weight {
  std::uint32_t pages = 0;
  std::uint32_t value = kNone;
  std::uint32_t gradient = kNone;
  std::uint32_t first_moment = kNone;
  std::uint32_t second_moment = kNone;
};

void initialise(PagingSimulation& run, Weight& weight) {
  weight.value = run.op1("empty", {}, weight.pages, 0.0001);
  run.op("uniform_", {{weight.value, true}}, {}, 0.001);
}

void add_gradient(PagingSimulation& run, Weight& weight, std::uint32_t input, double seconds) {
  if (weight.gradient == kNone) {
    weight.gradient = run.op1("grad_weight", {{input}}, weight.pages, seconds);
    return;
  }
  const std::uint32_t fresh = run.op1("grad_weight", {{input}}, weight.pages, seconds);
  run.op("add_", {{weight.gradient, true}, {fresh}}, {}, seconds / 8);
  run.free(fresh);
}

void adam(PagingSimulation& run, Weight& weight, double seconds) {
  if (weight.gradient == kNone) return;
  if (weight.first_moment == kNone) {
    weight.first_moment = run.op1("zeros_like", {{weight.value}}, weight.pages, seconds / 8);
    weight.second_moment = run.op1("zeros_like", {{weight.value}}, weight.pages, seconds / 8);
  }
  run.op("lerp_", {{weight.first_moment, true}, {weight.gradient}}, {}, seconds / 4);
  run.op("addcmul_", {{weight.second_moment, true}, {weight.gradient}}, {}, seconds / 4);
  const std::uint32_t denominator =
      run.op1("sqrt", {{weight.second_moment}}, weight.pages, seconds / 4);
  run.op("addcdiv_", {{weight.value, true}, {weight.first_moment}, {denominator}}, {}, seconds / 4);
  run.free(denominator);
}

void zero_gradient(PagingSimulation& run, Weight& weight, bool keeps) {
  if (weight.gradient == kNone) return;
  if (keeps) {
    run.op("zero_", {{weight.gradient, true}}, {}, 0.0005);
    return;
  }
  run.free(weight.gradient);
  weight.gradient = kNone;
}

class UNet final : public SyntheticTrainer {
 public:
  explicit UNet(const UNetSizes& sizes) : sizes_(sizes) {}

  void run_step(PagingSimulation& run, std::uint32_t) override {
    run.begin_step();
    nodes_.clear();
    std::vector<std::uint32_t> skips;
    std::uint32_t x = forward(run, "load", {}, pages(0), 0.25);
    for (std::uint32_t level = 0; level + 1 < sizes_.levels; ++level) {
      x = blocks(run, x, level);
      skips.push_back(x);
      x = forward(run, "pool", {x}, pages(level + 1), 0.25);
    }
    x = blocks(run, x, sizes_.levels - 1);
    for (std::uint32_t level = sizes_.levels - 1; level-- > 0;) {
      x = forward(run, "upsample", {x}, pages(level), 0.25);
      x = forward(run, "cat", {x, skips[level]}, 2 * pages(level), 0.25);
      x = blocks(run, x, level);
    }
    backward(run);
  }

 private:
  struct Node {
    std::vector<std::uint32_t> inputs;  ///< Positions of nodes.
    std::uint32_t output = kNone;
    std::uint32_t pages = 0;
    double cost = 0.0;
    std::uint32_t gradient = kNone;
  };

  std::uint32_t pages(std::uint32_t level) const {
    return std::max<std::uint32_t>(sizes_.top_pages >> level, 1);
  }

  /// Runs an operator on the outputs of other nodes; returns the position of its own node.
  std::uint32_t forward(PagingSimulation& run, const char* name, std::vector<std::uint32_t> inputs,
                        std::uint32_t pages, double cost, std::uint32_t inside = 0) {
    std::vector<Input> uses;
    for (const std::uint32_t input : inputs) uses.push_back({nodes_[input].output});
    Node node;
    node.output = run.op1(name, uses, pages, cost * sizes_.op_seconds, inside);
    node.inputs = std::move(inputs);
    node.pages = pages;
    node.cost = cost;
    nodes_.push_back(node);
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  std::uint32_t blocks(PagingSimulation& run, std::uint32_t x, std::uint32_t level) {
    for (std::uint32_t block = 0; block < sizes_.blocks; ++block) {
      x = forward(run, "conv", {x}, pages(level), 1.0, pages(level));
      run.op("relu_", {{nodes_[x].output, true}}, {}, sizes_.op_seconds / 8);
    }
    return x;
  }

  void backward(PagingSimulation& run) {
    nodes_.back().gradient = run.op1("loss_backward", {{nodes_.back().output}}, pages(0), 0.001);
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      Node& node = nodes_[i];
      for (const std::uint32_t input : node.inputs) {
        Node& source = nodes_[input];
        const std::uint32_t gradient =
            run.op1("backward", {{node.gradient}, {source.output}}, source.pages,
                    2.0 * node.cost * sizes_.op_seconds, node.cost > 0.5 ? source.pages : 0);
        if (source.gradient == kNone) {
          source.gradient = gradient;
        } else {
          run.op("add_", {{source.gradient, true}, {gradient}}, {}, sizes_.op_seconds / 8);
          run.free(gradient);
        }
      }
      run.free(node.gradient);
      run.free(node.output);
    }
  }

  UNetSizes sizes_;
  std::vector<Node> nodes_;
};

class Transformer final : public SyntheticTrainer {
 public:
  explicit Transformer(const TransformerSizes& sizes) : sizes_(sizes) {}

  void run_step(PagingSimulation& run, std::uint32_t step) override {
    if (step == 0) {
      weights_.assign(std::size_t{4} * sizes_.layers, Weight{sizes_.parameter_pages});
      for (Weight& weight : weights_) initialise(run, weight);
    }
    for (Weight& weight : weights_) zero_gradient(run, weight, false);
    run.begin_step();
    for (std::uint32_t i = 0; i < sizes_.micro_batches; ++i) forward_backward(run);
    for (Weight& weight : weights_) adam(run, weight, sizes_.op_seconds / 4);
  }

 private:
  void forward_backward(PagingSimulation& run) {
    const std::uint32_t a = sizes_.activation_pages;
    const double t = sizes_.op_seconds;
    std::vector<std::uint32_t> saved;
    std::uint32_t x = run.op1("embedding", {}, a, t / 4);
    for (std::uint32_t layer = 0; layer < sizes_.layers; ++layer) {
      const Weight* w = &weights_[std::size_t{4} * layer];
      const std::uint32_t normed = run.op1("layer_norm", {{x}}, a, t / 4);
      const std::uint32_t qkv = run.op1("linear_qkv", {{normed}, {w[0].value}}, 3 * a, t);
      const std::uint32_t mixed = run.op1("attention", {{qkv}}, a, t, a);
      const std::uint32_t projected = run.op1("linear", {{mixed}, {w[1].value}}, a, t);
      const std::uint32_t sum = run.op1("add", {{x}, {projected}}, a, t / 8);
      run.free(projected);
      const std::uint32_t wide = run.op1("linear_up", {{sum}, {w[2].value}}, 4 * a, t);
      const std::uint32_t gelu = run.op1("gelu", {{wide}}, 4 * a, t / 4);
      const std::uint32_t narrow = run.op1("linear_down", {{gelu}, {w[3].value}}, a, t);
      const std::uint32_t out = run.op1("add", {{sum}, {narrow}}, a, t / 8);
      run.free(narrow);
      for (const std::uint32_t kept : {x, normed, qkv, mixed, sum, wide, gelu})
        saved.push_back(kept);
      x = out;
    }
    std::uint32_t gradient = run.op1("loss_backward", {{x}}, a, t);
    run.free(x);
    for (std::uint32_t layer = sizes_.layers; layer-- > 0;)
      gradient = backward(run, layer, gradient, saved);
    run.free(gradient);
  }

  std::uint32_t backward(PagingSimulation& run, std::uint32_t layer, std::uint32_t gradient,
                         std::vector<std::uint32_t>& saved) {
    const std::uint32_t a = sizes_.activation_pages;
    const double t = sizes_.op_seconds;
    Weight* w = &weights_[std::size_t{4} * layer];
    const std::uint32_t* kept =
        saved.data() + saved.size() - 7;  // x normed qkv mixed sum wide gelu
    add_gradient(run, w[3], kept[6], t);
    const std::uint32_t wide = run.op1("grad_input", {{gradient}, {w[3].value}}, 4 * a, t);
    const std::uint32_t gelu = run.op1("gelu_backward", {{wide}, {kept[5]}}, 4 * a, t / 4);
    run.free(wide);
    add_gradient(run, w[2], kept[4], t);
    const std::uint32_t up = run.op1("grad_input", {{gelu}, {w[2].value}}, a, t);
    run.free(gelu);
    run.op("add_", {{gradient, true}, {up}}, {}, t / 8);
    run.free(up);
    add_gradient(run, w[1], kept[3], t);
    const std::uint32_t mixed = run.op1("grad_input", {{gradient}, {w[1].value}}, a, t);
    const std::uint32_t qkv = run.op1("attention_backward", {{mixed}, {kept[2]}}, 3 * a, 2 * t, a);
    run.free(mixed);
    add_gradient(run, w[0], kept[1], t);
    const std::uint32_t normed = run.op1("grad_input", {{qkv}, {w[0].value}}, a, t);
    run.free(qkv);
    const std::uint32_t next =
        run.op1("norm_backward", {{normed}, {kept[0]}, {gradient}}, a, t / 4);
    run.free(normed);
    run.free(gradient);
    for (int i = 0; i < 7; ++i) run.free(kept[i]);
    saved.resize(saved.size() - 7);
    return next;
  }

  TransformerSizes sizes_;
  std::vector<Weight> weights_;
};

class Mlp final : public SyntheticTrainer {
 public:
  explicit Mlp(const MlpSizes& sizes) : sizes_(sizes) {}

  void run_step(PagingSimulation& run, std::uint32_t step) override {
    if (step == 0) initialise_all(run);
    run.begin_step();
    for (Weight& weight : weights_) zero_gradient(run, weight, sizes_.keeps_gradients);
    forward_backward(run, sizes_.activation_pages);
    for (Weight& weight : weights_) adam(run, weight, sizes_.op_seconds / 2);
  }

  void initialise_all(PagingSimulation& run) {
    weights_.assign(sizes_.layers, Weight{sizes_.parameter_pages});
    for (Weight& weight : weights_) initialise(run, weight);
  }

  void forward_backward(PagingSimulation& run, std::uint32_t pages) {
    std::vector<std::uint32_t> saved{run.op1("load", {}, pages, 0.001)};
    for (const Weight& weight : weights_)
      saved.push_back(
          run.op1("linear", {{saved.back()}, {weight.value}}, pages, sizes_.op_seconds));
    std::uint32_t gradient = run.op1("loss_backward", {{saved.back()}}, pages, 0.001);
    run.free(saved.back());
    saved.pop_back();
    for (std::size_t i = weights_.size(); i-- > 0;) {
      add_gradient(run, weights_[i], saved.back(), sizes_.op_seconds);
      const std::uint32_t next =
          run.op1("grad_input", {{gradient}, {weights_[i].value}}, pages, sizes_.op_seconds);
      run.free(gradient);
      run.free(saved.back());
      saved.pop_back();
      gradient = next;
    }
    run.free(gradient);
  }

  void evaluate(PagingSimulation& run, std::uint32_t passes) {
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      std::uint32_t x = run.op1("load", {}, sizes_.activation_pages, 0.001);
      for (const Weight& weight : weights_) {
        const std::uint32_t next =
            run.op1("linear", {{x}, {weight.value}}, sizes_.activation_pages, sizes_.op_seconds);
        run.free(x);
        x = next;
      }
      const std::uint32_t hits = run.op1("argmax", {{x}}, 1, 0.001);
      run.free(x);
      run.free(hits);
    }
  }

  void optimize(PagingSimulation& run) {
    for (Weight& weight : weights_) adam(run, weight, sizes_.op_seconds / 2);
  }
  void zero_gradients(PagingSimulation& run) {
    for (Weight& weight : weights_) zero_gradient(run, weight, sizes_.keeps_gradients);
  }

 private:
  MlpSizes sizes_;
  std::vector<Weight> weights_;
};

class Evaluating final : public SyntheticTrainer {
 public:
  Evaluating(std::uint32_t period, std::uint32_t passes)
      : period_(period), passes_(passes), network_(MlpSizes{}) {}

  void run_step(PagingSimulation& run, std::uint32_t step) override {
    network_.run_step(run, step);
    if (step % period_ == period_ - 1) {
      run.begin_step();
      network_.evaluate(run, passes_);
    }
  }

 private:
  std::uint32_t period_;
  std::uint32_t passes_;
  Mlp network_;
};

class Uneven final : public SyntheticTrainer {
 public:
  explicit Uneven(std::uint32_t period) : period_(period), network_({6, 12, 8, 0.02, false}) {}

  void run_step(PagingSimulation& run, std::uint32_t step) override {
    if (step == 0) network_.initialise_all(run);
    run.begin_step();
    network_.zero_gradients(run);
    network_.forward_backward(run, step % period_ == period_ - 1 ? 4 : 8);
    network_.optimize(run);
  }

 private:
  std::uint32_t period_;
  Mlp network_;
};

class Gan final : public SyntheticTrainer {
 public:
  Gan() : generator_({6, 16, 4, 0.02, false}), critic_({4, 20, 4, 0.015, false}) {}

  void run_step(PagingSimulation& run, std::uint32_t step) override {
    if (step == 0) {
      generator_.initialise_all(run);
      critic_.initialise_all(run);
    }
    run.begin_step();
    critic_.zero_gradients(run);
    generator_.evaluate(run, 1);
    critic_.forward_backward(run, 4);
    critic_.forward_backward(run, 4);
    critic_.optimize(run);
    run.begin_step();
    generator_.zero_gradients(run);
    critic_.evaluate(run, 1);
    generator_.forward_backward(run, 4);
    generator_.optimize(run);
  }

 private:
  Mlp generator_;
  Mlp critic_;
};

class Sampler final : public SyntheticTrainer {
 public:
  void run_step(PagingSimulation& run, std::uint32_t step) override {
    if (step == 0) network_.initialise_all(run);
    run.begin_step();
    network_.evaluate(run, 1 + (step * 7) % 5);
    std::vector<std::uint32_t> cache;
    for (std::uint32_t i = 0; i < 10 + (step * 13) % 11; ++i)
      cache.push_back(run.op1("append", {}, 1 + i % 3, 0.002));
    for (const std::uint32_t kept : cache) run.op("read", {{kept}}, {}, 0.001);
    for (const std::uint32_t kept : cache) run.free(kept);
  }

 private:
  Mlp network_{MlpSizes{}};
};

}  // namespace

std::unique_ptr<SyntheticTrainer> make_unet(const UNetSizes& sizes) {
  return std::make_unique<UNet>(sizes);
}
std::unique_ptr<SyntheticTrainer> make_transformer(const TransformerSizes& sizes) {
  return std::make_unique<Transformer>(sizes);
}
std::unique_ptr<SyntheticTrainer> make_mlp(const MlpSizes& sizes) {
  return std::make_unique<Mlp>(sizes);
}
std::unique_ptr<SyntheticTrainer> make_evaluating(std::uint32_t period, std::uint32_t passes) {
  return std::make_unique<Evaluating>(period, passes);
}
std::unique_ptr<SyntheticTrainer> make_uneven(std::uint32_t period) {
  return std::make_unique<Uneven>(period);
}
std::unique_ptr<SyntheticTrainer> make_gan() { return std::make_unique<Gan>(); }
std::unique_ptr<SyntheticTrainer> make_sampler() { return std::make_unique<Sampler>(); }

}  // namespace spillway::testing
