#include "photo_net/photo_album.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <string>

#include "trainer/bad_input.h"
#include "trainer/random_choice.h"

namespace photo_net {
namespace {

namespace fs = std::filesystem;

// What a random number is used for; numbers of different streams have nothing to do with each
// other.
enum Stream : std::uint64_t { kTop, kLeft, kOrder };

bool is_jpeg(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return ending == ".jpg" || ending == ".jpeg";
}

// A folder is listed in any order; sorting makes the order of a run the same on every machine.
std::vector<fs::path> jpegs_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_jpeg(entry.path())) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

PhotoAlbum::PhotoAlbum(const AlbumOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed) {
  for (const fs::path& path : jpegs_in(options.folder)) {
    const Size size = read_size(path);
    const bool large_enough =
        static_cast<double>(size.height * size.width) >= options.min_megapixels * 1e6;
    const bool holds_crop =
        !options.crop || (size.height >= options.crop->height && size.width >= options.crop->width);
    if (large_enough && holds_crop) photos_.push_back({path, size});
  }
  if (photos_.empty())
    throw trainer::BadInput("no JPEG picture in '" + options.folder.string() +
                            "' is large enough: see --photos, --min-megapixels and --crop");
  if (!options.crop && options.batch > 1) require_equal_sizes();
}

void PhotoAlbum::require_equal_sizes() const {
  const Size first = photos_.front().size;
  for (const Entry& photo : photos_)
    if (photo.size.height != first.height || photo.size.width != first.width)
      throw trainer::BadInput(
          "'" + photos_.front().path.string() + "' and '" + photo.path.string() +
          "' differ in size and cannot share a batch: give --crop or --batch 1");
}

const PhotoAlbum::Entry& PhotoAlbum::photo_of(std::int64_t item) const {
  const std::int64_t round = item / photo_count();
  std::vector<std::size_t> order(photos_.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t last = order.size() - 1; last > 0; --last) {
    const auto swapped = trainer::random_index(static_cast<std::int64_t>(last) + 1, seed_,
                                               static_cast<std::uint64_t>(round), kOrder + last);
    std::swap(order[last], order[static_cast<std::size_t>(swapped)]);
  }
  return photos_[order[static_cast<std::size_t>(item % photo_count())]];
}

std::vector<Excerpt> PhotoAlbum::excerpts(std::int64_t step) const {
  std::vector<Excerpt> excerpts;
  for (std::int64_t number = 0; number < options_.batch; ++number) {
    const std::int64_t item = (step - 1) * options_.batch + number;
    const Entry& photo = photo_of(item);
    const Size size = options_.crop.value_or(photo.size);
    const auto place = [&](std::int64_t room, Stream stream) {
      return trainer::random_index(room + 1, seed_, static_cast<std::uint64_t>(item), stream);
    };
    excerpts.push_back({photo.path, place(photo.size.height - size.height, kTop),
                        place(photo.size.width - size.width, kLeft), size});
  }
  return excerpts;
}

}  // namespace photo_net
