#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace photo_net {

struct Size {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct Photo {
  Size size;
  std::vector<std::uint8_t> rgb;  ///< Row by row, red, green and blue of each pixel together.
};

/// Reads the header alone. Throws `trainer::BadInput` when the file is not a JPEG picture.
Size read_size(const std::filesystem::path& path);

/// Decodes the whole picture. Safe to call from many threads. Throws `trainer::BadInput` when the
/// file is damaged, even when the decoder could have guessed the missing part.
Photo read_photo(const std::filesystem::path& path);

}  // namespace photo_net
