// A plain driver of a fuzz target, where the compiler has no libFuzzer: replays a folder of seeds,
// then changed copies of them for some seconds.
//
//   replay FOLDER SECONDS [SEED]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

std::vector<Bytes> read_folder(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(folder)) paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return seeds;
}

uint64_t number(Random& random) {
  constexpr uint64_t kEdges[] = {0, 1, 2, 8, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1ull << 63, ~0ull};
  return random() % 3 ? kEdges[random() % std::size(kEdges)] : random() >> (random() % 64);
}

// Overwrite a number, copy a stretch over another, or cut or extend the end.
void change(Bytes& bytes, Random& random) {
  const size_t kind = random() % 16;
  if (bytes.size() < 16 || kind == 0) {
    bytes.resize(random() % (bytes.size() + 64));
    return;
  }
  const size_t width = size_t{1} << (random() % 4);
  const size_t at = random() % (bytes.size() - width + 1);
  if (kind < 4) {
    std::memmove(&bytes[at], &bytes[random() % (bytes.size() - width + 1)], width);
    return;
  }
  const uint64_t value = number(random);
  std::memcpy(&bytes[at], &value, width);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto seeds = read_folder(argv[1]);
  if (seeds.empty()) return 2;
  for (const Bytes& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  Random random(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(std::strtod(argv[2], nullptr));
  uint64_t runs = 0;
  for (; Clock::now() < end; ++runs) {
    Bytes bytes = seeds[random() % seeds.size()];
    for (uint64_t i = 1 + random() % 4; i > 0; --i) change(bytes, random);
    // Exactly as many bytes as there are, so that the sanitizer sees a read behind them.
    const Bytes exact(bytes);
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
  std::printf("%zu seeds, %llu changed\n", seeds.size(), static_cast<unsigned long long>(runs));
  return 0;
}
