// Cases about the autograd engine: hooks, custom functions, graphs that live long or run twice.

#include <ATen/record_function.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "case.h"
#include "run.h"

namespace awkward {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// Keeps the gradient that just became final, then trains with it and drops it.
class StepInHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit StepInHook(std::vector<std::string>& notes) : notes_(notes) {}
  void operator()(const Variable& tensor) override {
    const at::NoGradGuard no_grad;
    notes_.push_back(fingerprint(tensor.grad()));
    tensor.sub_(tensor.grad(), 0.05);
    tensor.mutable_grad().reset();
  }

 private:
  std::vector<std::string>& notes_;
};

/// x * w * w with everything saved the regular way.
struct SavedProduct : torch::autograd::Function<SavedProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& w) {
    const at::Tensor middle = x * w;
    context->save_for_backward({x, w, middle});
    return middle * w;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {grads[0] * saved[1] * saved[1], grads[0] * saved[2] * 2};
  }
};

/// The same with the tensors put where autograd does not look.
struct HiddenProduct : torch::autograd::Function<HiddenProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& w) {
    const at::Tensor middle = x * w;
    context->saved_data["x"] = x.detach().clone();
    context->saved_data["w"] = w.detach();
    context->saved_data["pair"] = std::vector<at::Tensor>{middle, middle.exp()};
    return middle * w;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor w = context->saved_data["w"].toTensor();
    const std::vector<at::Tensor> pair = context->saved_data["pair"].toTensorVector();
    const at::Tensor check = (pair[1].log() - pair[0]).abs().max();
    return {grads[0] * w * w + check,
            grads[0] * pair[0] * 2 + context->saved_data["x"].toTensor() * 0};
  }
};

/// Runs its function again in backward instead of keeping what the function saved.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& w) {
    context->save_for_backward({x, w});
    return compute(x, w);
  }
  static Variable compute(const Variable& x, const Variable& w) {
    return torch::tanh(torch::relu(x.mm(w)).mm(w.t()));
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::AutoGradMode with_grad(true);
    const at::Tensor x = saved[0].detach().requires_grad_();
    const at::Tensor w = saved[1].detach().requires_grad_();
    compute(x, w).backward(grads[0]);
    return {x.grad(), w.grad()};
  }
};

struct ThrowsInBackward : torch::autograd::Function<ThrowsInBackward> {
  static Variable forward(AutogradContext* context, const Variable& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext*, variable_list) {
    throw std::runtime_error("this backward always throws");
  }
};

/// Saves a variable at half its size, as a program that compresses activations would.
class RoundingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = tensor.to(torch::kHalf); }
  at::Tensor call_unpack_hook() override { return packed_.to(torch::kFloat); }

 private:
  at::Tensor packed_;
};

/// An operator graph of several MiB per node that ends in a scalar.
at::Tensor deep_loss(const std::vector<at::Tensor>& weights, at::Tensor x) {
  for (const at::Tensor& w : weights) {
    x = torch::tanh(x.mm(w)) + 0.5 * x.sin();
  }
  return x.pow(2).mean();
}

std::vector<at::Tensor> square_weights(int count) {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < count; ++i) {
    weights.push_back((here::randn({1024, 1024}) * 0.03).requires_grad_());
  }
  return weights;
}

void note_grads(Run& run, const std::vector<at::Tensor>& weights) {
  for (const at::Tensor& w : weights) {
    run.tensor("grad", w.grad());
  }
}

}  // namespace

SPILLWAY_AWKWARD_CASE(tensor_hooks,
                      "hooks on leaves and inner tensors that read and change grads") {
  const std::vector<at::Tensor> weights = square_weights(6);
  std::vector<std::string> notes;
  for (const at::Tensor& w : weights) {
    w.register_hook([&notes](const at::Tensor& grad) {
      notes.push_back(fingerprint(grad));
      return grad.clamp(-1e-4, 1e-4);
    });
  }
  for ([[maybe_unused]] const int step : run.steps(3)) {
    at::Tensor x = mlp_batch();
    std::vector<at::Tensor> kept;
    for (const at::Tensor& w : weights) {
      x = torch::relu(x.mm(w));
      x.retain_grad();
      x.register_hook([&kept](const at::Tensor& grad) { kept.push_back(grad); });
      x.register_hook([](const at::Tensor& grad) { return grad * 3; });
    }
    x.sum().backward();
    run.tensors("kept", kept);
    run.tensor("retained", x.grad());
  }
  for (const std::string& note : notes) {
    run.text("seen", note);
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(post_accumulate_hooks, "the optimizer step inside backward, grads dropped") {
  const std::vector<at::Tensor> weights = square_weights(14);
  std::vector<std::string> notes;
  for (const at::Tensor& w : weights) {
    torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<StepInHook>(notes));
  }
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const at::Tensor loss = deep_loss(weights, mlp_batch());
    loss.backward();
    run.number("loss", loss);
  }
  for (const std::string& note : notes) {
    run.text("final grad", note);
  }
  run.tensors("weight", weights);
}

// Autograd adds to a gradient in place, and makes it the leaf's own, where nobody else has it.
SPILLWAY_AWKWARD_CASE(reference_counts, "who else has a tensor or its storage, asked everywhere") {
  constexpr std::int64_t kRows = 64;  // 256 KiB, which records of operators refer to.
  std::vector<std::string> notes;
  const auto note = [&notes](const char* where, const at::Tensor& tensor) {
    notes.push_back(where + std::to_string(tensor.use_count()) + " " +
                    std::to_string(tensor.storage().use_count()) + " " +
                    std::to_string(tensor.getIntrusivePtr().weak_use_count()));
  };
  const auto note_hook = [&note](const at::Tensor& grad) { note("hook ", grad); };
  const std::vector<at::Tensor> weights = square_weights(8);
  const at::Tensor bias = here::randn({kRows, 1024}).requires_grad_();
  bias.register_hook(note_hook);
  for ([[maybe_unused]] const int step : run.steps(4)) {
    at::Tensor x = here::randn({1024, 1024});
    std::vector<at::Tensor> seen;
    for (const at::Tensor& w : weights) {
      const at::Tensor scale = bias.detach() * 0.5;
      const at::Tensor moved = x.mm(w).view({-1, kRows, 1024}) + scale + bias;
      const at::Tensor factor = scale + 1;
      x = SavedProduct::apply(moved.tanh(), factor).view({1024, 1024});
      x.register_hook(note_hook);
      seen.insert(seen.end(), {x, moved, scale, factor, bias});
      for (const at::Tensor& tensor : seen) {
        note("forward ", tensor);
      }
    }
    x.pow(2).mean().backward();
    for (const at::Tensor& tensor : seen) {
      note("after backward ", tensor);
    }
    note("gradient ", bias.grad());
  }
  for (const std::string& text : notes) {
    run.text("counts", text);
  }
  run.tensor("bias", bias.grad());
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(custom_function, "own autograd functions that save tensors the regular way") {
  const std::vector<at::Tensor> weights = square_weights(4);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    at::Tensor x = here::randn({1024, 1024});
    for (const at::Tensor& w : weights) {
      x = SavedProduct::apply(x + 1, w + 1);
    }
    x.mean().backward();
    run.tensor("out", x);
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(custom_function_saved_data, "tensors hidden in the context of a function") {
  const std::vector<at::Tensor> weights = square_weights(3);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    at::Tensor x = here::randn({1024, 1024});
    for (const at::Tensor& w : weights) {
      x = HiddenProduct::apply(x, w + 1);
    }
    x.mean().backward();
    run.tensor("out", x);
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(saved_variable_hooks, "a program's own hooks on variables it saves") {
  Ballast ballast(14, 4);
  for (const int step : run.steps(3)) {
    const at::Tensor x = here::randn({1024, 1024}).requires_grad_();
    const at::Tensor y = x * 2;
    torch::autograd::SavedVariable plain(x, /*is_output=*/false);
    torch::autograd::SavedVariable rounded(ballast.tensors()[step], /*is_output=*/false);
    run.text("hooks",
             thrown_by([&] { rounded.register_hooks(std::make_unique<RoundingHooks>()); }));
    ballast.sweep();
    run.tensor("plain", plain.unpack());
    run.tensor("rounded", rounded.unpack());
    y.sum().backward();
    run.tensor("grad", x.grad());
  }
}

SPILLWAY_AWKWARD_CASE(double_backward, "a gradient penalty through create_graph") {
  const std::vector<at::Tensor> weights = square_weights(4);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const at::Tensor x = mlp_batch().requires_grad_();
    const at::Tensor loss = deep_loss(weights, x);
    const at::Tensor slope = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true,
                                                   /*create_graph=*/true)[0];
    const at::Tensor penalty = slope.mul(1000).pow(2).mean();
    (loss + penalty).backward();
    run.number("loss", loss);
    run.number("penalty", penalty);
    run.tensor("x.grad", x.grad());
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(retain_graph, "one graph run three times, other work between") {
  const std::vector<at::Tensor> weights = square_weights(5);
  Ballast ballast(6, 4);
  for ([[maybe_unused]] const int step : run.steps(2)) {
    const at::Tensor loss = deep_loss(weights, mlp_batch());
    loss.backward({}, /*keep_graph=*/true);
    ballast.sweep();
    loss.backward(torch::tensor(0.5F, device()), /*keep_graph=*/true);
    ballast.sweep();
    const auto partial = torch::autograd::grad({loss}, {weights[0], weights[3]});
    run.tensors("partial", partial);
    run.text("fourth", thrown_by([&] { loss.backward(); }));
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(reentrant_backward, "backward inside a hook and inside a custom function") {
  const std::vector<at::Tensor> weights = square_weights(5);
  const std::vector<at::Tensor> inner_weights = square_weights(3);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    at::Tensor x = mlp_batch();
    for (const at::Tensor& w : weights) {
      x = Checkpoint::apply(x, w);
    }
    x.register_hook([&](const at::Tensor& grad) {
      const at::AutoGradMode with_grad(true);
      deep_loss(inner_weights, grad.detach() * 1e3).backward();
      return grad + inner_weights[0].grad().narrow(0, 0, kMlpBatch) * 1e-3;
    });
    const at::Tensor loss = x.pow(2).mean();
    loss.backward();
    run.number("loss", loss);
  }
  note_grads(run, weights);
  note_grads(run, inner_weights);
}

SPILLWAY_AWKWARD_CASE(backward_on_worker, "forward on one thread, backward on another") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = torch::mse_loss(model->forward(mlp_batch()), mlp_batch());
    run.number("loss", loss);
    std::thread worker([loss = std::move(loss)]() mutable {
      loss.backward();
      loss.reset();  // The graph dies here too.
    });
    worker.join();
    optimizer.step();
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(graph_over_steps, "activations that wait several steps for their backward") {
  const std::vector<at::Tensor> weights = square_weights(3);
  std::vector<at::Tensor> waiting;
  for ([[maybe_unused]] const int step : run.steps(5)) {
    waiting.push_back(deep_loss(weights, mlp_batch()));
    if (waiting.size() == 3) {
      waiting.front().backward();
      run.number("loss", waiting.front());
      waiting.erase(waiting.begin());
    }
  }
  waiting.clear();  // The last graphs die without a backward.
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(anomaly_mode, "anomaly detection, on clean steps and on one with NaN") {
  Mlp model = make_mlp();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::autograd::DetectAnomalyGuard detect;
  const at::Tensor x = mlp_batch();
  const at::Tensor target = mlp_batch();
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      const at::Tensor bad = (model->forward(x) - 100).sqrt().mean();
      run.text("anomaly", thrown_by([&] { bad.backward(); }));
      continue;
    }
    run.number("loss", train_step(model, optimizer, x, target));
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(failing_backward, "exceptions out of backward, hooks and version checks") {
  const std::vector<at::Tensor> weights = square_weights(10);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const at::Tensor x = mlp_batch();
    run.text("function", thrown_by([&] {
               (ThrowsInBackward::apply(x.mm(weights[0])) + x.mm(weights[1])).sum().backward();
             }));
    const at::Tensor hooked = x.mm(weights[2]);
    hooked.register_hook([](const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("this hook always throws");
    });
    run.text("hook", thrown_by([&] { hooked.sum().backward(); }));
    const at::Tensor changed = torch::tanh(x.mm(weights[3]));
    const at::Tensor loss = changed.pow(2).sum();
    changed.mul_(2);
    run.text("version", thrown_by([&] { loss.backward(); }).substr(0, 60));
    run.text("leaf", thrown_by([&] { weights[4].add_(1); }));
    deep_loss(weights, x).backward();
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(nested_no_grad, "no_grad, enable_grad and inference mode inside each other") {
  const std::vector<at::Tensor> weights = square_weights(12);
  for (int step = 0; step < 3; ++step) {
    at::Tensor x = mlp_batch();
    at::Tensor frozen;
    {
      const at::NoGradGuard outer;
      frozen = deep_loss(weights, x);
      {
        const at::AutoGradMode with_grad(true);
        const at::NoGradGuard inner;
        weights[0].mul_(0.99);
      }
      const at::AutoGradMode with_grad(true);
      deep_loss({weights[1], weights[2]}, x).backward();
    }
    {
      const c10::InferenceMode inference;
      at::Tensor y = x.mm(weights[3]).relu_().mm(weights[4]);
      y.add_(1);
      run.tensor("inference", y);
    }
    run.number("frozen", frozen);
    deep_loss(weights, x).backward();
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(dispatch_guards, "operators called below autograd by the program itself") {
  const std::vector<at::Tensor> weights = square_weights(12);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = mlp_batch();
    deep_loss(weights, x).backward();
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (const at::Tensor& w : weights) {
        w.sub_(w.grad(), 0.1);
        w.view(-1).narrow(0, 0, 10).zero_();
      }
    }
    const at::AutoDispatchBelowAutograd guard;
    run.tensor("product", x.mm(weights[step]).relu_());
  }
  run.tensors("weight", weights);
}

namespace {

std::mutex seen_mutex;
std::vector<std::string>* seen = nullptr;

std::unique_ptr<at::ObserverContext> note_inputs(const at::RecordFunction& record) {
  if (std::string_view(record.name()) == "aten::mm") {
    const std::lock_guard lock(seen_mutex);
    for (const c10::IValue& input : record.inputs()) {
      const at::Tensor& tensor = input.toTensor();
      seen->push_back("in " + std::to_string(hash_of(tensor.const_data_ptr(), 4096)));
    }
  }
  return nullptr;
}

void note_outputs(const at::RecordFunction& record, at::ObserverContext*) {
  if (std::string_view(record.name()) == "aten::mm") {
    const std::lock_guard lock(seen_mutex);
    const at::Tensor& tensor = record.outputs()[0].toTensor();
    seen->push_back("out " + std::to_string(hash_of(tensor.const_data_ptr(), 4096)));
  }
}

}  // namespace

SPILLWAY_AWKWARD_CASE(record_function, "observers of the program that read inputs and outputs") {
  std::vector<std::string> lines;
  seen = &lines;
  const std::vector<at::Tensor> weights = square_weights(10);
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&note_inputs, &note_outputs).needsInputs(true).needsOutputs(true));
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const at::Tensor loss = deep_loss(weights, mlp_batch());
    loss.backward();
    run.number("loss", loss);
  }
  at::removeCallback(handle);
  for (const std::string& line : lines) {
    run.text("mm", line);
  }
  note_grads(run, weights);
}

SPILLWAY_AWKWARD_CASE(shared_parameters, "one weight used in many places of the graph") {
  const std::vector<at::Tensor> weights = square_weights(8);
  torch::optim::Adam optimizer(weights, 1e-3);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    at::Tensor x = mlp_batch();
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (std::size_t i = 0; i < weights.size(); i += 2) {
        x = torch::tanh(x.mm(weights[i]).mm(weights[i].t()).mm(weights[(i + 3) % 8]));
      }
    }
    const at::Tensor loss = x.pow(2).mean();
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
  }
  note_grads(run, weights);
  run.tensors("weight", weights);
}

SPILLWAY_AWKWARD_CASE(graph_dies_elsewhere,
                      "graphs and their saved tensors freed by other threads") {
  const std::vector<at::Tensor> weights = square_weights(8);
  for ([[maybe_unused]] const int step : run.steps(4)) {
    at::Tensor used = deep_loss(weights, mlp_batch());
    at::Tensor unused = deep_loss({weights[0], weights[1], weights[2]}, mlp_batch());
    used.backward({}, /*keep_graph=*/true);
    run.number("loss", used);
    std::thread first([graph = std::move(used)]() mutable { graph.reset(); });
    std::thread second([graph = std::move(unused)]() mutable { graph.reset(); });
    const at::Tensor meanwhile = deep_loss({weights[3]}, mlp_batch());
    first.join();
    second.join();
    run.number("meanwhile", meanwhile);
  }
  note_grads(run, weights);
}

}  // namespace awkward
