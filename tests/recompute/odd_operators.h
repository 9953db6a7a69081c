#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace spillway::recompute {

/// Operators of the namespace aten that misbehave in one way each:
///   odd_swapped(x)   two results like x, the second allocated first
///   odd_fails(x)     throws while `odd_operators_fail` is set
///   odd_writes(x)    adds 1 to x, which its schema calls read only
///   odd_moves(x, running_mean)   x plus running_mean, to which it adds 1 before
///   odd_draws(x)     takes a random number that its result does not depend on
///   odd_beside(x)    in its second call another thread takes a random number
///   odd_counts(x)    x plus the number of its calls
///   odd_sees(x)      a row of what a kernel can see of its surroundings
void register_odd_operators();
extern bool odd_operators_fail;

std::vector<at::Tensor> call_odd(const std::string& name, std::vector<c10::IValue> arguments);

}  // namespace spillway::recompute
