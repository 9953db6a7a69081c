#include "spillway/device/all_of.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

class AllMoments final : public EventState {
 public:
  explicit AllMoments(std::vector<Event> moments)
      : EventState(moments.front().state()->device(), Timing::kNone),
        moments_(std::move(moments)) {}

  bool is_done() const override {
    return std::all_of(moments_.begin(), moments_.end(),
                       [](const Event& moment) { return moment.is_done(); });
  }
  std::string obstacle() const override {
    for (const Event& moment : moments_)
      if (std::string text = moment.state()->obstacle(); !text.empty()) return text;
    return {};
  }
  Outcome wait() const override {
    Outcome first;
    for (const Event& moment : moments_) {
      const Outcome outcome = moment.wait();
      if (first.succeeded()) first = outcome;
    }
    return first;
  }
  Duration time_since(const EventState& /*earlier*/) const override {
    throw Error("several moments of {} have no time", device());
  }

 private:
  const std::vector<Event> moments_;
};

}  // namespace

Event all_of(std::vector<Event> moments) {
  std::erase_if(moments, [](const Event& moment) { return moment.state() == nullptr; });
  if (moments.empty()) return {};
  if (moments.size() == 1) return moments.front();
  return Event(std::make_shared<const AllMoments>(std::move(moments)));
}

}  // namespace spillway::device
