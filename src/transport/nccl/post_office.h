#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "letters.h"
#include "spillway/transport/transport.h"

namespace spillway::transport::nccl {

/// Letters between the ranks of a transport, in the order in which each rank sends them. One
/// thread.
class PostOffice {
 public:
  explicit PostOffice(Transport& host);
  /// Where letters are still under way, the host transport has its memory for ever.
  ~PostOffice();
  PostOffice(const PostOffice&) = delete;
  PostOffice& operator=(const PostOffice&) = delete;

  void send(Rank to, const Letter& letter);
  void send_all(Letter::Kind kind);
  /// The next one that has come; none: none has. Throws TransportError where none can come any
  /// more.
  std::optional<std::pair<Rank, Letter>> take();
  /// Whether each other rank has sent its last one.
  bool have_all_sent_last() const;
  std::vector<Rank> without_last() const;

 private:
  struct Incoming {
    Rank from;
    std::uint64_t number = 0;
    Letter letter;
    device::Event came;
    bool is_over = false;
  };
  struct Outgoing {
    Letter letter;
    device::Event left;
  };
  struct Kept {
    std::vector<Incoming> incoming;
    std::deque<std::unique_ptr<Outgoing>> outgoing;
  };

  void expect(Incoming& from);
  void forget_what_has_left();

  Transport& host_;
  std::unique_ptr<Kept> kept_;
  std::vector<std::uint64_t> sent_;  ///< To each rank.
};

}  // namespace spillway::transport::nccl
