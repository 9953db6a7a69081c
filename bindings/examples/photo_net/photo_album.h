#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "photo_net/jpeg.h"

namespace photo_net {

/// The part of one photograph that takes part in a step.
struct Excerpt {
  std::filesystem::path path;
  std::int64_t top = 0;
  std::int64_t left = 0;
  Size size;
};

struct AlbumOptions {
  std::filesystem::path folder = "/usr/share/backgrounds";
  double min_megapixels = 15.0;
  std::optional<Size> crop;  ///< Absent: whole photographs.
  std::int64_t batch = 1;
};

/// Says which photographs, and which parts of them, each step sees. Every photograph comes once per
/// round, in an order that differs from round to round.
class PhotoAlbum {
 public:
  /// Reads the headers of all JPEG files in the folder. Throws `trainer::BadInput` when none is
  /// large enough, or when whole photographs of different sizes would have to share a batch.
  PhotoAlbum(const AlbumOptions& options, std::uint64_t seed);

  std::vector<Excerpt> excerpts(std::int64_t step) const;
  std::int64_t photo_count() const { return static_cast<std::int64_t>(photos_.size()); }

 private:
  struct Entry {
    std::filesystem::path path;
    Size size;
  };

  void require_equal_sizes() const;
  const Entry& photo_of(std::int64_t item) const;

  AlbumOptions options_;
  std::uint64_t seed_;
  std::vector<Entry> photos_;
};

}  // namespace photo_net
