#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "here.h"

namespace awkward {

class Run;

/// How the steps of a case go beside what it does in them.
enum class StepStyle : std::uint8_t {
  kAsTheyAre,
  /// Each begins with what tells a trainer's steps apart, the update of a parameter after a
  /// backward pass: cases without an optimizer have nothing else by which a step could be known
  /// before a thousand operators have run.
  kAnnounced,
  /// What the case does lies between the forward and the backward pass of a model of its own, whose
  /// activations can be dropped and recomputed meanwhile. See `more_to_drop` too.
  kMoreToDrop,
};

/// The numbers of some steps, for a loop over them.
class Steps {
 public:
  class Iterator {
   public:
    Iterator(int step, Steps* steps) : step_(step), steps_(steps) {}
    int operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    int step_;
    Steps* steps_;
  };

  Steps(int count, StepStyle style, Run& run) : count_(count), style_(style), run_(run) {}
  Iterator begin() { return {0, this}; }
  Iterator end() { return {count_, this}; }

 private:
  void begin_step(bool is_first);
  void end_step();

  int count_;
  StepStyle style_;
  Run& run_;
  at::Tensor scale_;  ///< The only parameter of the model around the steps.
  at::Tensor loss_;   ///< Of the step so far.
};

/// What a case may use, and where it writes down what it computed: one line per result, equal in
/// two runs exactly when every byte of every result is equal. Not thread-safe: threads of a case
/// hand their results to its main thread.
class Run {
 public:
  /// `scratch` is an existing empty folder for files of the case.
  Run(std::uint64_t seed, int threads, std::filesystem::path scratch, StepStyle style,
      at::Device device);

  /// For cases without an optimizer. What they compute does not depend on the style.
  Steps steps(int count) { return {count, style_, *this}; }

  void tensor(std::string_view name, const at::Tensor& value);
  void tensors(std::string_view name, const std::vector<at::Tensor>& values);
  void number(std::string_view name, double value);
  void number(std::string_view name, const at::Tensor& scalar);
  void text(std::string_view name, std::string_view value);
  void bytes(std::string_view name, const void* data, std::size_t size);

  std::uint64_t seed() const { return seed_; }
  int threads() const { return threads_; }
  std::string file(std::string_view name) const { return (scratch_ / name).string(); }
  const std::string& report() const { return report_; }

 private:
  std::uint64_t seed_;
  int threads_;
  std::filesystem::path scratch_;
  StepStyle style_;
  std::string report_;
};

/// 64-bit hash of `size` bytes, read from where they lie.
std::uint64_t hash_of(const void* data, std::size_t size);

/// Type, sizes and hash of the elements of a tensor of any layout.
std::string fingerprint(const at::Tensor& value);

/// `mib` MiB of standard normal floats in one dimension, drawn from the default generator.
at::Tensor normal_mib(std::int64_t mib);

/// Tensors that a case lays beside its own so that the two do not fit into a small budget together.
class Ballast {
 public:
  Ballast(int count, std::int64_t mib_each);
  /// Reads and writes every one of them with operators, which pushes out whatever is not in use.
  void sweep();
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<at::Tensor> tensors_;
};

/// For an activation of a case that has an optimizer. Under `StepStyle::kMoreToDrop` it leads
/// through a chain of further activations of some MiB, and is another one therefore; else it stays
/// as it is.
at::Tensor more_to_drop(const at::Tensor& activation);

/// `layers` square linear layers with ReLU between them, each of them with `more_to_drop`.
class MlpImpl : public torch::nn::Cloneable<MlpImpl> {
 public:
  MlpImpl(std::int64_t layer_count, std::int64_t width);
  void reset() override;
  at::Tensor forward(at::Tensor x);

  std::vector<torch::nn::Linear> layers;

 private:
  std::int64_t layer_count_;
  std::int64_t width_;
};
TORCH_MODULE(Mlp);

inline constexpr std::int64_t kMlpWidth = 1024;  ///< 4 MiB per weight.
inline constexpr std::int64_t kMlpBatch = 256;   ///< 1 MiB per activation.

/// Four layers of 4 MiB each: with gradients and the moments of Adam 64 MiB.
Mlp make_mlp(std::int64_t layer_count = 4);

/// A batch of inputs or targets for such a model.
at::Tensor mlp_batch();

/// One step of mean squared error; returns the loss.
at::Tensor train_step(Mlp& model, torch::optim::Optimizer& optimizer, const at::Tensor& x,
                      const at::Tensor& target);

/// Notes the parameters of a module and their gradients.
void note_module(Run& run, const torch::nn::Module& module);

/// Sets the thread count of OpenMP behind LibTorch's back. No effect in a program without OpenMP.
void set_openmp_threads(int count);

/// First line of what a failing call threw, or "no exception".
template <typename Call>
std::string thrown_by(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "no exception";
}

}  // namespace awkward
