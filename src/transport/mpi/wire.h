#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "matching.h"
#include "shim.h"

namespace spillway::transport::mpi {

/// Travels before the bytes of each message, or with them where they are few.
struct Envelope {
  enum class Kind : std::uint8_t { kWithBytes, kBytesFollow, kTaking, kLeaving };

  std::uint64_t size = 0;
  std::uint64_t number = 0;  ///< Of the tag; of one that is leaving: of all its envelopes, with it.
  std::int32_t data_tag = 0;  ///< Of the bytes that follow, or that are being taken.
  Stream stream = Stream::kControl;
  Kind kind = Kind::kWithBytes;
};

/// As many bytes as an envelope has room for.
inline constexpr std::size_t kMostInside = 4096 - sizeof(Envelope);
/// An envelope and what is in it.
using Letter = std::vector<std::byte>;
Letter make_letter(const Envelope& envelope, std::span<const std::byte> bytes = {});

/// Envelopes and bytes by the site's MPI. On the MPI thread alone. Calls throw TransportError where
/// MPI fails.
class Wire {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void take_letter(Rank from, const Envelope& envelope,
                             std::span<const std::byte> inside) = 0;
    virtual void end_send(const Name& name) = 0;
    virtual void end_receive(const Name& name) = 0;
  };

  Wire(const Shim& shim, const ShimWorld& world, bool is_synchronous, Listener& listener);

  /// `data` follows; its end is told where `is_told`, or it is empty and nothing is to follow.
  void send(const Name& name, Letter letter, device::DeviceSpan data, bool is_told);
  void receive(const DataReceive& data);
  /// To all others: the last letter, with the number of all that they got from here.
  void send_leave();
  /// `peer` takes the bytes that were sent to it with this tag: MPI has to be asked often now.
  void note_taken(Rank peer, std::int32_t data_tag);
  /// Tells the listener what has happened since; false: nothing.
  bool progress();

  /// Of sends, and of receives of bytes that are announced.
  bool is_idle() const { return transfers_.empty(); }
  /// Whether bytes are on their way that both sides have given to MPI.
  bool is_moving() const { return moving_ > 0; }

 private:
  /// One message, or what is left of it.
  struct Transfer {
    Name name;
    enum class Kind : std::uint8_t { kSend, kReceive, kDrain } kind = Kind::kSend;
    bool is_told = true;
    bool is_moving = false;
    Letter letter{};                         ///< In use until the end.
    std::optional<std::int32_t> data_tag{};  ///< Of a send: in use until the end.
    std::uint32_t left = 0;                  ///< Requests of MPI.
    Bytes undrained{};                       ///< Of kDrain: what no request is made for yet.
  };
  using Shared = std::shared_ptr<Transfer>;

  void send_note(Rank to, const Envelope& envelope);
  void start_moving(Transfer& transfer);
  void post_standing(std::size_t slot);
  void post_pieces(const Shared& transfer, std::byte* data, Bytes size);
  void drain_piece(const Shared& transfer);
  void open_letter(const ShimEnd& end);
  void end_piece(const ShimEnd& end);
  std::int32_t take_data_tag(const Shared& transfer);
  std::uint64_t keep(const Shared& transfer);

  const Shim& shim_;
  const ShimWorld world_;
  const bool is_synchronous_;
  Listener& listener_;

  static constexpr std::size_t kStanding = 16;  ///< Receives for letters of any rank.
  std::vector<Letter> standing_;
  std::uint64_t next_id_ = kStanding;  ///< Those below are of `standing_`.
  std::unordered_map<std::uint64_t, Shared> transfers_;
  std::vector<std::int32_t> next_data_tag_;  ///< Of each rank.
  std::map<std::pair<Rank, std::int32_t>, Shared> taken_data_tags_;
  std::vector<std::uint64_t> letters_;  ///< To each rank.
  bool has_left_ = false;               ///< No letters after that.
  std::uint32_t moving_ = 0;            ///< Transfers.
};

}  // namespace spillway::transport::mpi
