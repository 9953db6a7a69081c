#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "letters.h"

namespace spillway::transport::nccl {

/// Gives whatever ranks do together on their devices one order, in which no two of them ever wait
/// for each other: whoever takes part in two things has them in the same order as all others.
///
/// A device works off what NCCL is given one after the other, so each has to begin on all its ranks
/// behind the same things. A rank asks when its program is ready, and only what all ranks of a
/// circle have asked for is given a place: all of them hold still while it gets one, from the first
/// rank to the last, whose step that is. Circles are gone through in the order of ranks, so ranks
/// that hold still never wait for one another in a ring. What is ready at once in a pair, in both
/// directions, gets one place.
///
/// Knows neither NCCL nor messages: letters that come from one rank are taken in the order in which
/// they were sent. One thread.
class Agreement {
 public:
  explicit Agreement(Rank self) : self_(self) {}

  /// `members` in increasing order, with this rank. Pairs need not be told.
  void add_group(std::uint32_t group, std::vector<Rank> members);

  /// This rank is asked for it. No other one of the circle has its name until this one has ended.
  void offer(const Circle& circle, const Request& request);
  /// Nothing more is offered here.
  void end() { note_ended(self_); }
  /// One of the kinds that are about requests, `kEnded` or `kLast`. Throws TransportError where it
  /// cannot be.
  void take(Rank from, const Letter& letter);

  /// What to do next, in this order, all at one place.
  struct Batch {
    Circle circle;
    std::vector<Request> requests;
  };
  std::vector<Batch> take_agreed() { return std::exchange(agreed_, {}); }

  /// What `other` asks for is not what this rank asks for under that name, or it has ended and asks
  /// for nothing.
  struct Misfit {
    Circle circle;
    Request theirs;  ///< Of one that has ended: this rank's own.
    Rank other;
    bool has_ended = false;
  };
  std::vector<Misfit> take_misfits() { return std::exchange(misfits_, {}); }

  /// To be sent now.
  std::vector<std::pair<Rank, Letter>> take_letters();

  /// What this rank holds still for; none: it does not.
  const std::optional<Batch>& held() const { return held_; }
  const std::vector<Rank>& members(const Circle& circle);

 private:
  struct Asked {
    Rank by;
    Request request;
  };
  struct Name {
    std::uint32_t place;
    std::uint64_t number;
    auto operator<=>(const Name&) const = default;
  };

  Rank first_of(const Circle& circle) { return members(circle).front(); }
  Circle circle_of(Rank from, const Letter& letter) const;
  void write(Rank to, Letter::Kind kind, const Circle& circle, std::vector<Request> requests,
             Rank about = Rank(0));
  void note(const Circle& circle, const Asked& asked);
  void refuse(const Circle& circle, std::vector<Asked> asked);
  void note_gone(Rank rank);
  void note_ended(Rank rank);
  bool miss(const Circle& circle, const std::vector<Asked>& asked);
  void hold(Batch batch);
  void go_on();

  const Rank self_;
  std::set<Rank> ended_;                             ///< Who asks for nothing more,
  std::set<Rank> gone_;                              ///< and who does not even answer any more.
  std::map<std::pair<Circle, Name>, Request> mine_;  ///< Of circles that others lead.
  std::map<std::uint32_t, std::vector<Rank>> groups_;
  std::map<Rank, std::vector<Rank>> pairs_;
  std::map<std::pair<Circle, Name>, std::vector<Asked>> asked_;  ///< Of circles that it leads.
  std::deque<std::pair<Circle, Request>> ready_;                 ///< All have asked for these.
  std::optional<Batch> held_;
  std::deque<Batch> waiting_;  ///< That others hold still for.
  std::vector<Batch> agreed_;
  std::vector<Misfit> misfits_;
  std::vector<std::pair<Rank, Letter>> letters_;
};

}  // namespace spillway::transport::nccl
