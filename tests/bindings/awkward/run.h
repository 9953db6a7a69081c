#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace awkward {

/// The numbers of some steps, for a loop over them. Announcing, each begins with what tells a
/// trainer's steps apart, the update of a parameter after a backward pass: cases without an
/// optimizer have nothing else by which a step could be known before a thousand operators have run.
class Steps {
 public:
  class Iterator {
   public:
    Iterator(int step, bool announces) : step_(step), announces_(announces) {}
    int operator*() const;
    Iterator& operator++() {
      ++step_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    int step_;
    bool announces_;
  };

  Steps(int count, bool announces) : count_(count), announces_(announces) {}
  Iterator begin() const { return {0, announces_}; }
  Iterator end() const { return {count_, announces_}; }

 private:
  int count_;
  bool announces_;
};

/// What a case may use, and where it writes down what it computed: one line per result, equal in
/// two runs exactly when every byte of every result is equal. Not thread-safe: threads of a case
/// hand their results to its main thread.
class Run {
 public:
  /// `scratch` is an existing empty folder for files of the case. `announces_steps`: see `Steps`.
  Run(std::uint64_t seed, int threads, std::filesystem::path scratch, bool announces_steps);

  /// For cases without an optimizer. What they compute does not depend on the announcements.
  Steps steps(int count) const { return {count, announces_steps_}; }

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
  bool announces_steps_;
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

/// `layers` square linear layers with ReLU between them.
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
