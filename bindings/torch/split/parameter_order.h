#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace spillway::split {

/// What a parameter is called in all shards: the place in which the program has made it, among
/// tensors of its type and shape that came to require a gradient before the same forward. Data do
/// not change it, unless they come to another number of such tensors: then `of` differs, and nobody
/// takes one for the other.
struct ParameterName {
  std::uint64_t kind = 0;    ///< Hash of type and shape, and of which forward it was.
  std::uint32_t number = 0;  ///< From 1 on.
  std::uint32_t of = 0;      ///< So many.

  auto operator<=>(const ParameterName&) const = default;
};

/// Knows what a program trains, and in which order it has made that: parameters of modules, which
/// are torch.nn.Parameter in Python, and what C++ modules register. Other tensors that require
/// gradients are free leaves. The program's thread.
class ParameterOrder {
 public:
  /// Forward has used a parameter: what is made from now on is made before another forward.
  void parameter_used() { open_.reset(); }
  /// It has come to require a gradient, and is a leaf. Needed for places alone: the program can see
  /// that somebody refers to it weakly.
  void leaf_made(c10::TensorImpl& leaf);
  /// By a module of LibTorch's C++ interface.
  void registered(const at::Tensor& parameter);

  /// Of a leaf that requires a gradient: whether a module has it as its parameter.
  bool is_declared(const at::Tensor& leaf) const;
  struct Place {
    ParameterName name;
    std::uint64_t forward = 0;  ///< Before which it was made.
  };
  /// None: nobody saw it made.
  std::optional<Place> place_of(const at::Tensor& leaf) const;

 private:
  /// Up to the next forward.
  struct Period {
    std::uint64_t number = 0;
    std::unordered_map<std::uint64_t, std::uint32_t> counts;  ///< By kind.
  };
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::shared_ptr<Period> in{};
    std::uint64_t kind = 0;
    std::uint32_t number = 0;
    bool is_registered = false;
  };

  Leaf& noted(c10::TensorImpl& leaf);
  const Leaf* find(const at::Tensor& leaf) const;

  std::unordered_map<const c10::TensorImpl*, Leaf> leaves_;
  std::size_t most_ = 1024;  ///< Before those that have ended are looked for.
  std::shared_ptr<Period> open_;
  std::uint64_t periods_ = 0;
};

}  // namespace spillway::split
