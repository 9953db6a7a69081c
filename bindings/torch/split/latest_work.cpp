#include "latest_work.h"

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::split {
namespace {

using schedule::ActionKind;
using Piece = LatestWork::Piece;
using Kind = Piece::Kind;

constexpr std::size_t kShownGroups = 12;
constexpr std::size_t kShownExpected = 4;

std::string message_text(const Piece& piece) {
  return message("storage {} ({}) {} rank {}", piece.storage.value(), piece.size,
                 piece.kind == Kind::kSends ? "to" : "of", piece.peer.value());
}

/// What follows each other for the same, of the same kind.
struct Group {
  std::uint64_t step = 0;
  const Piece* last = nullptr;
  std::size_t count = 0;

  bool takes(const Piece& piece, std::uint64_t its_step) const {
    return last != nullptr && its_step == step && piece.kind == Kind::kComputes &&
           last->kind == Kind::kComputes && piece.action == last->action;
  }
};

std::string text_of(const Group& group) {
  switch (group.last->kind) {
    case Kind::kSends: return "sent " + message_text(*group.last);
    case Kind::kReceives: return "got " + message_text(*group.last);
    case Kind::kExchanges: return "began an exchange with other shards";
    case Kind::kComputes: break;
  }
  const std::string what = group.last->action ? to_string(*group.last->action) : "no micro-batch";
  return message("{} operator{} of {} up to {}", group.count, group.count == 1 ? "" : "s", what,
                 group.last->name);
}

}  // namespace

std::string purpose_of(const ForAction& action) {
  if (!action) return {};
  return message(" for {} of stage {}, micro-batch {}",
                 action->kind == ActionKind::kForward ? "forward" : "backward", action->stage,
                 action->micro_batch);
}

void LatestWork::begin(const Piece& piece, TimePoint now) {
  add(piece);
  is_computing_ = true;
  has_begun_ = true;
  latest_ = now;
}

void LatestWork::end(TimePoint now) {
  is_computing_ = false;
  latest_ = now;
}

void LatestWork::add(const Piece& piece) { kept_[count_++ % kKept] = {piece, step_}; }

void LatestWork::has_come(pipeline::TaskId task) {
  const auto found = expected_.find(task);
  if (found == expected_.end()) return;
  add(found->second);
  expected_.erase(found);
}

std::string LatestWork::now_text(TimePoint now, std::size_t left) const {
  const std::string tasks = message("{} task{} left", left, left == 1 ? " is" : "s are");
  if (is_computing_) {
    const Piece& piece = kept_[(count_ - 1) % kKept].piece;
    return message("has been computing {}{} in step {} for {}; {}", piece.name,
                   purpose_of(piece.action), step_, whole_seconds_text(now - latest_), tasks);
  }
  std::string text = has_begun_
                         ? message("has computed nothing for {}", whole_seconds_text(now - latest_))
                         : std::string("has computed nothing so far");
  std::size_t shown = 0;
  for (const auto& [task, piece] : expected_) {
    if (shown == kShownExpected) break;
    text += message("{}{}{}", shown == 0 ? ", and waits for " : ", ", message_text(piece),
                    purpose_of(piece.action));
    ++shown;
  }
  if (expected_.size() > shown) text += message(" and {} more", expected_.size() - shown);
  return message("{}, in step {}; {}", text, step_, tasks);
}

std::string LatestWork::before_text() const {
  std::vector<Group> groups;
  const std::uint64_t first = count_ - std::min<std::uint64_t>(count_, kKept);
  for (std::uint64_t i = first; i < count_; ++i) {
    const Kept& kept = kept_[i % kKept];
    if (groups.empty() || !groups.back().takes(kept.piece, kept.step))
      groups.push_back({.step = kept.step});
    groups.back().last = &kept.piece;
    ++groups.back().count;
  }
  if (groups.size() > kShownGroups)
    groups.erase(groups.begin(), groups.end() - std::ptrdiff_t{kShownGroups});
  std::string text = "did last, in this order:";
  std::uint64_t step = 0;
  for (const Group& group : groups) {
    text += message("{}{} {}", text.back() == ':' ? "" : ",",
                    group.step == step ? "" : message(" in step {}", group.step), text_of(group));
    step = group.step;
  }
  return text;
}

std::vector<std::string> LatestWork::describe(TimePoint now, std::size_t left) const {
  std::vector<std::string> lines{now_text(now, left)};
  if (count_ > 0) lines.push_back(before_text());
  return lines;
}

}  // namespace spillway::split
