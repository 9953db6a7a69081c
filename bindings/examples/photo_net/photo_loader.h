#pragma once

#include <torch/torch.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "photo_net/photo_album.h"

namespace photo_net {

struct LoaderOptions {
  int threads = 2;
  std::int64_t first_batch = 1;
  std::int64_t last_batch = 1;
};

/// Decodes the photographs of coming batches in threads of its own, while the current one is
/// computed. The batches come out in their order whichever thread is faster.
class PhotoLoader {
 public:
  /// `album` must outlive the loader.
  PhotoLoader(const PhotoAlbum& album, const LoaderOptions& options);

  /// Waits for the threads, which finish the photograph at hand.
  ~PhotoLoader();

  PhotoLoader(const PhotoLoader&) = delete;
  PhotoLoader& operator=(const PhotoLoader&) = delete;

  /// The photographs of the next batch, [N, 3, H, W], values from 0 to 1. Throws what the thread
  /// that decoded them threw.
  torch::Tensor next();

 private:
  struct Outcome {
    torch::Tensor batch;
    std::exception_ptr error;
  };

  void work();
  Outcome load(std::int64_t batch) const;

  const PhotoAlbum& album_;
  const LoaderOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Outcome> finished_;  // by batch
  std::int64_t next_started_;
  std::int64_t next_wanted_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace photo_net
