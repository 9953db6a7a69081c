#include "text_gpt/text.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "trainer/bad_input.h"
#include "trainer/random_choice.h"

namespace text_gpt {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    throw trainer::BadInput("cannot read any text from '" + path.string() + "': see --text");
  return text;
}

}  // namespace

Text::Text(const std::vector<fs::path>& files, std::int64_t context, torch::Device device)
    : context_(context), device_(device) {
  std::string text;
  for (const fs::path& path : files) text += read(path);
  const auto size = static_cast<std::int64_t>(text.size());
  training_size_ = size - size / 10;
  // A stretch needs one byte more than the context: the target of its last token.
  if (size / 10 < context + 1)
    throw trainer::BadInput("the text has " + std::to_string(size) + " bytes, and a --context of " +
                            std::to_string(context) + " needs " +
                            std::to_string(10 * (context + 1)) + ": give more files with --text");
  bytes_ = torch::from_blob(text.data(), {size}, torch::kByte).clone();
}

Tokens Text::batch(Part part, std::int64_t size, std::uint64_t seed, std::int64_t number) const {
  const std::int64_t begin = part == Part::kTraining ? 0 : training_size_;
  const std::int64_t end = part == Part::kTraining ? training_size_ : bytes_.numel();
  std::vector<torch::Tensor> stretches;
  for (std::int64_t row = 0; row < size; ++row) {
    const std::int64_t start =
        begin + trainer::random_index(end - begin - context_, seed, number, row);
    stretches.push_back(bytes_.narrow(0, start, context_ + 1));
  }
  const torch::Tensor tokens = torch::stack(stretches).to(torch::kLong).to(device_);
  return {tokens.narrow(1, 0, context_).contiguous(), tokens.narrow(1, 1, context_).contiguous()};
}

std::vector<fs::path> default_files() {
  const fs::path folder = "/usr/share/common-licenses";
  std::vector<fs::path> files;
  if (fs::is_directory(folder)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty())
    throw trainer::BadInput("there is no text in '" + folder.string() + "': give --text FILE");
  return files;
}

}  // namespace text_gpt
