#include "spillway/profile/transfer_rates.h"

#include <limits>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"

namespace spillway::profile {
namespace {

std::string problem_with(const RateField& field, const std::string& what, double value) {
  if (field.most == kMostTransferRate) return rate_problem(what, value);
  if (value >= field.least && value <= field.most) return {};
  return message("{} is {}, not from {} to {}", what, value, field.least, field.most);
}

}  // namespace

std::string problem_with(const TransferRates& rates) {
  std::string problem;
  for (const RateField& field : kRateFields)
    if (problem.empty()) problem = problem_with(field, field.key, rates.*field.field);
  return problem;
}

TransferRates rates_in(JsonObject& object) {
  constexpr double kAny = std::numeric_limits<double>::max();
  TransferRates rates;
  for (const RateField& field : kRateFields) {
    if (field.may_be_missing && !object.has(field.key)) continue;
    const double value = rates.*field.field = object.number(field.key, -kAny, kAny);
    const std::string problem = problem_with(field, object.place(field.key), value);
    if (!problem.empty()) throw ConfigError("{}", problem);
  }
  return rates;
}

}  // namespace spillway::profile
