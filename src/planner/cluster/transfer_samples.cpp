#include "spillway/planner/cluster/transfer_samples.h"

#include <charconv>
#include <optional>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cluster {
namespace {

// 2^53: beyond it, numbers skip bytes.
constexpr double kMostBytes = 9007199254740992.0;
constexpr double kMostSeconds = 1e12;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<double> number_in(std::string_view text, double most) {
  text = trimmed(text);
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || !(value >= 0.0 && value <= most)) return std::nullopt;
  return value;
}

std::optional<TransferSample> sample_in(std::string_view row) {
  const auto comma = row.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const auto bytes = number_in(row.substr(0, comma), kMostBytes);
  const auto seconds = number_in(row.substr(comma + 1), kMostSeconds);
  if (!bytes || !seconds || *seconds == 0.0) return std::nullopt;
  return TransferSample{*bytes, *seconds};
}

bool is_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

}  // namespace

std::vector<TransferSample> parse_samples(std::string_view text, const std::string& name) {
  std::vector<TransferSample> samples;
  bool may_be_heading = true;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view row = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (row.empty() || row.front() == '#') continue;
    // Tables come with names of their columns. Only the first row may be one: a word further down
    // is a slip.
    const bool is_heading = may_be_heading && is_word(row.front());
    may_be_heading = false;
    if (is_heading) continue;
    const auto sample = sample_in(row);
    if (!sample)
      throw ConfigError("{}, line {}: '{}' is no row of bytes and seconds (write them as 1048576,"
                        "0.0001)",
                        name, line, shown_text(row));
    samples.push_back(*sample);
  }
  return samples;
}

LinkCosts fitted_link(std::span<const TransferSample> samples) {
  // Relative errors: each sample weighs 1/seconds², else the largest message decides alone.
  double weights = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
  for (const TransferSample& each : samples) {
    if (!(each.seconds > 0.0) || !(each.bytes >= 0.0))
      throw ConfigError("a message of {} bytes cannot take {} s (measure again)", each.bytes,
                        each.seconds);
    const double weight = 1.0 / (each.seconds * each.seconds);
    weights += weight;
    x += weight * each.bytes;
    y += weight * each.seconds;
    xx += weight * each.bytes * each.bytes;
    xy += weight * each.bytes * each.seconds;
  }
  const double spread = weights * xx - x * x;
  // Sizes that differ by rounding alone would give any rate.
  if (!(spread > 1e-12 * weights * xx))
    throw ConfigError("messages of one size do not tell latency from rate (measure two sizes)");
  double slope = (weights * xy - x * y) / spread;
  double latency = (y - slope * x) / weights;
  // Noise: no message arrives before it is sent. With none, the best line through 0 has this slope.
  if (latency < 0.0) {
    latency = 0.0;
    slope = xy / xx;
  }
  if (!(slope > 0.0))
    throw ConfigError("larger messages took less time than small ones (measure again)");
  return {latency, TransferRate(1.0 / slope)};
}

}  // namespace spillway::cluster
