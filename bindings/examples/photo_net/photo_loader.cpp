#include "photo_net/photo_loader.h"

#include <stdexcept>

namespace photo_net {
namespace {

torch::Tensor read_excerpt(const Excerpt& excerpt) {
  Photo photo = read_photo(excerpt.path);
  const torch::Tensor pixels =
      torch::from_blob(photo.rgb.data(), {photo.size.height, photo.size.width, 3}, torch::kByte);
  // The conversion copies, so nothing refers to `photo` after this function.
  return pixels.narrow(0, excerpt.top, excerpt.size.height)
      .narrow(1, excerpt.left, excerpt.size.width)
      .permute({2, 0, 1})
      .to(torch::kFloat)
      .div_(255.0);
}

}  // namespace

PhotoLoader::PhotoLoader(const PhotoAlbum& album, const LoaderOptions& options)
    : album_(album),
      options_(options),
      next_started_(options.first_batch),
      next_wanted_(options.first_batch) {
  for (int number = 0; number < options_.threads; ++number)
    threads_.emplace_back(&PhotoLoader::work, this);
}

PhotoLoader::~PhotoLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

torch::Tensor PhotoLoader::next() {
  std::unique_lock lock(mutex_);
  if (next_wanted_ > options_.last_batch) throw std::logic_error("no batch is left to load");
  changed_.wait(lock, [this] { return finished_.count(next_wanted_) > 0; });
  const Outcome outcome = std::move(finished_.extract(next_wanted_).mapped());
  ++next_wanted_;
  changed_.notify_all();
  if (outcome.error) std::rethrow_exception(outcome.error);
  return outcome.batch;
}

void PhotoLoader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    // At most one finished batch per thread waits, or decoding would fill the memory.
    changed_.wait(lock,
                  [this] { return stopping_ || next_started_ < next_wanted_ + options_.threads; });
    if (stopping_ || next_started_ > options_.last_batch) return;
    const std::int64_t batch = next_started_++;
    lock.unlock();
    Outcome outcome = load(batch);
    lock.lock();
    finished_.emplace(batch, std::move(outcome));
    changed_.notify_all();
  }
}

PhotoLoader::Outcome PhotoLoader::load(std::int64_t batch) const {
  try {
    std::vector<torch::Tensor> photos;
    for (const Excerpt& excerpt : album_.excerpts(batch)) photos.push_back(read_excerpt(excerpt));
    return {torch::stack(photos), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

}  // namespace photo_net
