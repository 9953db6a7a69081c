#include "photo_net/jpeg.h"

#include <turbojpeg.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>

#include "trainer/bad_input.h"

namespace photo_net {
namespace {

using Bytes = std::vector<unsigned char>;

struct Destroy {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};
using Decoder = std::unique_ptr<std::remove_pointer_t<tjhandle>, Destroy>;

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file || bytes.empty()) throw trainer::BadInput("cannot read '" + path.string() + "'");
  return bytes;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const Decoder& decoder) {
  throw trainer::BadInput("'" + path.string() +
                          "' is not a complete JPEG picture: " + tjGetErrorStr2(decoder.get()));
}

Size size_of(const Bytes& bytes, const Decoder& decoder, const std::filesystem::path& path) {
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder.get(), bytes.data(), bytes.size(), &width, &height, &subsampling,
                          &colours) != 0)
    refuse(path, decoder);
  return {height, width};
}

}  // namespace

Size read_size(const std::filesystem::path& path) {
  const Decoder decoder(tjInitDecompress());
  return size_of(read_bytes(path), decoder, path);
}

Photo read_photo(const std::filesystem::path& path) {
  const Decoder decoder(tjInitDecompress());
  const Bytes bytes = read_bytes(path);
  Photo photo;
  photo.size = size_of(bytes, decoder, path);
  photo.rgb.resize(static_cast<std::size_t>(photo.size.height * photo.size.width * 3));
  if (tjDecompress2(decoder.get(), bytes.data(), bytes.size(), photo.rgb.data(),
                    static_cast<int>(photo.size.width), /*pitch=*/0,
                    static_cast<int>(photo.size.height), TJPF_RGB, TJFLAG_ACCURATEDCT) != 0)
    refuse(path, decoder);
  return photo;
}

}  // namespace photo_net
