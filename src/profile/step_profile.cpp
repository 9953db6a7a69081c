#include "spillway/profile/step_profile.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/profile/autograd_links.h"

namespace spillway::profile {
namespace {

// Planners count pages in 32 bits.
constexpr std::uint64_t kMostPages = (std::uint64_t{1} << 31) - 1;
constexpr std::uint64_t kMostPageBytes = std::uint64_t{1} << 30;
// 30 years; sums of a step's times stay far from overflowing.
constexpr Duration kLongestStep = std::chrono::hours(24 * 365 * 30);

template <typename List>
void check_size(const List& list, std::size_t expected, const char* what) {
  if (list.size() != expected)
    throw PlanError("the profile has {} {} instead of {}", list.size(), what, expected);
}

void check_sizes(const StepProfile& profile) {
  check_size(profile.kind_of_op, profile.tape.ops.size(), "kinds of operators");
  check_size(profile.spread_of_op, profile.tape.ops.size(), "spreads of times");
  if (!profile.phase_of_op.empty() || !profile.forward_of_op.empty()) {
    check_size(profile.phase_of_op, profile.tape.ops.size(), "phases of operators");
    check_size(profile.forward_of_op, profile.tape.ops.size(), "forwards of operators");
  }
  check_size(profile.class_of_value, profile.tape.values.size(), "classes of values");
  check_size(profile.bytes_of_value, profile.tape.values.size(), "sizes of values in bytes");
}

void check_pages(const StepProfile& profile) {
  const std::uint64_t page = profile.page_size.count();
  if (page == 0 || (page & (page - 1)) != 0 || page > kMostPageBytes)
    throw PlanError("a page of {} bytes is no power of two up to {}", page, kMostPageBytes);
  std::uint64_t all = 0;
  for (ValueIndex i = 0; i < profile.bytes_of_value.size(); ++i) {
    const std::uint64_t bytes = profile.bytes_of_value[i].count();
    const std::uint64_t pages = bytes / page + (bytes % page != 0 ? 1 : 0);
    if (pages != profile.tape.values[i].pages)
      throw PlanError("value {} of {} bytes has {} pages instead of {}", i, bytes,
                      profile.tape.values[i].pages, pages);
    all += pages;
  }
  std::uint64_t most_inside = 0;
  for (const TapeOp& op : profile.tape.ops)
    most_inside = std::max<std::uint64_t>(most_inside, op.inside_peak_pages);
  if (all + most_inside > kMostPages)
    throw PlanError("the values of the step have {} pages, more than can be planned for ({})",
                    all + most_inside, kMostPages);
  for (const Bytes small : {profile.small_bytes, profile.small_parameter_bytes})
    if (small.count() / page > kMostPages)
      throw PlanError("{} small bytes are more than can be planned for", small.count());
  if (profile.program_needs && profile.program_needs->budget.count() / page > kMostPages)
    throw PlanError("{} bytes needed at once by {} are more than can be planned for",
                    profile.program_needs->budget.count(), profile.program_needs->op.name);
}

void check_ops(const StepProfile& profile) {
  const StepTape& tape = profile.tape;
  std::vector<OpIndex> user(tape.values.size(), kCarriedIn);
  Duration step{0};
  std::uint64_t next_use = 0;
  for (OpIndex i = 0; i < tape.ops.size(); ++i) {
    const TapeOp& op = tape.ops[i];
    if (profile.kind_of_op[i] >= profile.kinds.size())
      throw PlanError("operator {} is of kind {} of {}", i, profile.kind_of_op[i],
                      profile.kinds.size());
    if (op.time < Duration{0} || profile.spread_of_op[i] < Duration{0})
      throw PlanError("operator {} takes {} ns with a spread of {} ns", i, op.time.count(),
                      profile.spread_of_op[i].count());
    if (op.time > kLongestStep - step)
      throw PlanError("the operators up to {} take more than 30 years", i);
    step += op.time;
    if (op.first_use != next_use)
      throw PlanError("uses of operator {} begin at {} instead of {}", i, op.first_use, next_use);
    next_use += op.use_count;
    for (std::uint64_t use = op.first_use; use < next_use; ++use) {
      const ValueIndex value = tape.uses[use].value;
      if (user[value] == i) throw PlanError("operator {} uses value {} twice", i, value);
      user[value] = i;
    }
  }
  if (next_use != tape.uses.size())
    throw PlanError("the operators have {} uses of {}", next_use, tape.uses.size());
}

/// Runs know these for their own plans; which storages share one may differ from step to step.
void check_shared(const StepProfile& profile) {
  const StepTape& tape = profile.tape;
  for (ValueIndex i = 0; i < tape.values.size(); ++i)
    if (tape.values[i].is_shared || profile.class_of_value[i] == StorageClass::kSharedPage)
      throw PlanError("value {} is a page that small storages share, which no profile has", i);
  for (OpIndex i = 0; i < tape.ops.size(); ++i)
    if (tape.ops[i].shared_count > 0)
      throw PlanError("operator {} uses pages that small storages share, which no profile has", i);
}

void check_phases(const StepProfile& profile) {
  for (OpIndex op = 0; op < profile.forward_of_op.size(); ++op) {
    const OpIndex forward = profile.forward_of_op[op];
    if (forward == kNoForward) continue;
    if (forward >= op)
      throw PlanError("operator {} has operator {} as its forward, which is no earlier one", op,
                      forward);
    if (profile.phase_of_op[op] != OpPhase::kBackward)
      throw PlanError("operator {} has operator {} as its forward, but is not backward", op,
                      forward);
  }
}

void check_dependences(const StepProfile& profile) {
  if (!profile.hidden_dependences) return;
  for (const HiddenDependence& each : *profile.hidden_dependences)
    if (each.before >= each.after || each.after >= profile.tape.ops.size())
      throw PlanError("operator {} of {} waits for operator {}, which is no earlier one",
                      each.after, profile.tape.ops.size(), each.before);
}

}  // namespace

void check(const StepProfile& profile) {
  check_sizes(profile);
  if (profile.tape.ops.empty()) throw PlanError("the profile has no operators");
  check(profile.tape);
  check_pages(profile);
  check_shared(profile);
  check_ops(profile);
  check_phases(profile);
  check_dependences(profile);
  const std::string problem = profile.rates ? problem_with(*profile.rates) : "";
  if (!problem.empty()) throw PlanError("the rates of the profile: {}", problem);
}

}  // namespace spillway::profile
