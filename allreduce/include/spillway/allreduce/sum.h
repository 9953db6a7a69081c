#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/allreduce/sum_memory.h"
#include "spillway/base/bytes.h"
#include "spillway/transport/transport.h"

namespace spillway::allreduce {

/// What gradients are made of.
enum class Element : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kComplex64,
  kComplex128,
  kInt32,
  kInt64
};

Bytes size_of(Element element);

/// In which order the ranks' elements are added. Each addition has the precision and the rounding
/// of `a.add_(b)` on the CPU of LibTorch: those of 16 bits are added as float32 and rounded after
/// each. The result is the same on all ranks, and the same on every run with the same options.
enum class Order : std::uint8_t {
  kOrdered,  ///< ((g0 + g1) + g2) + …, from rank 0 on: whatever the number of hosts and the sizes.
  kFast,  ///< For few bytes on each link: the order depends on sizes, hosts and ranks (README.md).
};

struct SumOptions {
  Order order = Order::kOrdered;
  /// kFast: name of the host of each rank of the group; empty: all on one, or each on its own.
  std::vector<std::string> hosts = {};
  /// The sum is multiplied by it, after the last addition and its rounding: 1.0 / D for a mean,
  /// as a float (a double for elements of 64 bits) that is rounded to the element's kind once: the
  /// bits of Python's `mul_(1.0 / D)`. Integers take 1.
  double factor = 1;
  /// Of a message, at most; at least an element. A sum of D ranks takes 4·D pieces of memory beside
  /// its parts, at most.
  Bytes piece = 1_MiB;
  Bytes small = 256_KiB;  ///< kFast: a sum of at most so many bytes has fewer and larger messages.
};

/// A sum under way. One thread at a time. May go away before its end only where the job has ended:
/// the transport still has its memory.
class Sum {
 public:
  Sum() = default;
  virtual ~Sum() = default;
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  /// Does what the messages that have come allow, additions included, and never waits. True: the
  /// result is in place and nothing is under way. To be called again once a notifier of
  /// Stream::kSums was notified. Ends the job, as `Transport::abort`, where a message has failed.
  virtual bool advance() = 0;

  /// Whose message, or whose taking of one, is next; none where the sum has ended.
  virtual Rank waits_for() const = 0;
};

/// Begins to add up `parts` of all ranks of `group`, one after another as one array, so that many
/// small ones travel together; the result replaces them on each rank. They start where an `Element`
/// may, and belong to the sum until it has ended.
///
/// All ranks of the group begin it with equal options and the same number of bytes in all; a rank
/// may cut these into other parts. They may begin and drive sums in different orders. `number`,
/// below 2^32, tells sums apart that are under way at once between two ranks, whatever their
/// groups: its messages have tags of Stream::kSums from number·2^32 on.
///
/// Throws Error for parts that are not whole elements, and for options that are out of range, on
/// each rank before any message; TransportError as `Transport::send`.
std::unique_ptr<Sum> begin_sum(transport::Transport& group, std::uint64_t number, Element element,
                               std::vector<std::span<std::byte>> parts,
                               const SumOptions& options = {});

/// The same for parts in `memory`, which outlives the sum, as do its messages there: `group` has to
/// carry bytes of that device. With one order and equal additions it gives the same bits.
std::unique_ptr<Sum> begin_sum(transport::Transport& group, std::uint64_t number, Element element,
                               const std::vector<device::DeviceSpan>& parts, SumMemory& memory,
                               const SumOptions& options = {});

}  // namespace spillway::allreduce
