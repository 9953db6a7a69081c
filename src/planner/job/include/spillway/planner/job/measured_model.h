#pragma once

#include <vector>

#include "spillway/planner/partition/model_chain.h"
#include "spillway/profile/step_profile.h"

namespace spillway::job {

/// A model as one device measured it in one pass: its layers, and what no layer owns. The profiled
/// step is one micro-batch.
struct MeasuredModel {
  partition::ModelChain chain;
  double update_seconds = 0.0;   ///< Seconds of the optimizer for all parameters.
  Bytes reserved;                ///< On every device: what is too small to be told apart.
  bool guesses_forward = false;  ///< Nothing in the profile told where forward ends.
};

/// The forward operators of a profile as layers. A profile knows no modules, so a layer is one
/// operator; cuts lie between operators.
///
/// - Operators up to the end of forward are forward: before the first one that ran in a backward
///   pass, as recorded profiles tell. Guessed for others: before the first one that is called "...
///   backward", as in imported graphs, else as `forward_stash.h` finds it. Those that touch
///   optimizer states or write parameters are the update, all others backward.
/// - A backward operator counts for the layer whose node it ran in. Guessed where no profile tells:
///   for the layer whose parameters it uses, else for the latest one of its name (`convolution` of
///   `convolution_backward`) that makes or reads a stashed value which it uses, else for the one
///   that made the latest such value, else for that of the operator before. What saves only its
///   input, and has another name, is credited to its neighbour: one operator off.
/// - Weights, gradients and optimizer states per byte of parameters are one ratio for the model.
///   Parameters that are too small for the tape count in equal parts for all trained layers. Pages
///   that small tensors share count for the stash of the layer that begins them, as far as they
///   wait for backward.
///   Buffers, among them data that lives on behind the step, are no parameters: they belong to the
///   first layer that reads them.
/// - Layers that lead are frozen up to the first one that reads a trained parameter, or that makes
///   or reads what backward uses: the last layer of a frozen prefix counts as trained, without any
///   backward, since what it makes waits for the layer behind it.
/// - Layers wait for those whose values they read or overwrite, and for what the profile says of
///   smaller ones (`hidden_dependences`). Where it does not, as recorded ones, the order is fixed
///   (`may_reorder`); the chain's dependences then are a guess on the safe side for who frees it.
/// - What a layer makes and keeps can be recomputed from what other layers keep, with all that
///   writes it in place, where these operators and those in between may run again and write nothing
///   that was there before the step. Data that a layer keeps stays.
///
/// Throws ConfigError for a profile without forward or without backward.
MeasuredModel measured_model(const profile::StepProfile& profile);

/// A chain whose layers take so many seconds and no memory: what a plain vector of costs says.
/// Throws ConfigError with the first one that is negative or not finite.
partition::ModelChain chain_of_costs(const std::vector<double>& seconds);

}  // namespace spillway::job
