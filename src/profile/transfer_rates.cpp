#include "spillway/profile/transfer_rates.h"

#include <limits>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"

namespace spillway::profile {
namespace {

std::string problem_with(const TransferCostField& field, const std::string& what, double value) {
  if (value >= field.least && value <= field.most) return {};
  return message("{} is {}, not from {} to {}", what, value, field.least, field.most);
}

void require(const std::string& problem) {
  if (!problem.empty()) throw ConfigError("{}", problem);
}

}  // namespace

std::string problem_with(const TransferRates& rates) {
  std::string problem;
  for (const RateField& field : kRateFields)
    if (problem.empty()) problem = rate_problem(field.key, rates.*field.field);
  for (const TransferCostField& field : kTransferCostFields)
    if (problem.empty()) problem = problem_with(field, field.key, rates.*field.field);
  return problem;
}

TransferRates rates_in(JsonObject& object) {
  constexpr double kAny = std::numeric_limits<double>::max();
  TransferRates rates;
  for (const RateField& field : kRateFields) {
    rates.*field.field = TransferRate(object.number(field.key, -kAny, kAny));
    require(rate_problem(object.place(field.key), rates.*field.field));
  }
  for (const TransferCostField& field : kTransferCostFields) {
    if (field.may_be_missing && !object.has(field.key)) continue;
    rates.*field.field = object.number(field.key, -kAny, kAny);
    require(problem_with(field, object.place(field.key), rates.*field.field));
  }
  return rates;
}

}  // namespace spillway::profile
