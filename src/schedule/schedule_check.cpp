#include "spillway/schedule/schedule_check.h"

#include "message_check.h"
#include "rendezvous.h"
#include "spillway/base/error.h"
#include "spillway/schedule/messages.h"
#include "spillway/schedule/weight_copies.h"
#include "update_check.h"
#include "work_check.h"

namespace spillway::schedule {

std::string to_string(const ScheduleFault& fault) {
  return message("rank {}, action {} ({}): {}", fault.rank, fault.position, fault.action,
                 fault.reason);
}

std::optional<ScheduleFault> first_fault(const Schedule& schedule) {
  check_shape(schedule);
  const WeightCopies copies(schedule);
  if (auto fault = work_fault(schedule, copies)) return fault;
  if (auto fault = update_fault(schedule, copies)) return fault;
  if (has_messages(schedule))
    if (auto fault = message_fault(schedule, copies)) return fault;
  if (auto fault = order_fault(schedule, copies)) return fault;
  return Rendezvous(schedule, copies).fault();
}

void check_schedule(const Schedule& schedule) {
  if (const auto fault = first_fault(schedule)) throw PlanError("{}", to_string(*fault));
}

}  // namespace spillway::schedule
