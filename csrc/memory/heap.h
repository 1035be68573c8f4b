// Blocks of memory inside reserved addresses: size classes with split and merge. Blocks are placed
// by size class and, within a class, at the lowest address; a block is merged with its free
// neighbours when it is freed. Memory is mapped under a block when it is allocated and stays until
// trim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "memory/pages.h"

namespace vcc {

class Heap {
 public:
  static constexpr size_t kAlignment = 512;

  // `region`: bytes of addresses reserved at a time, or more when one block needs more.
  Heap(std::shared_ptr<Device> device, size_t chunk, size_t region);

  // A block of at least `size` bytes with memory under it. Throws kDevice; then nothing has
  // changed.
  CUdeviceptr allocate(size_t size);

  // Returns the size of the block, or 0 when the address is not that of a block in use.
  size_t free(CUdeviceptr address);

  bool contains(CUdeviceptr address) const;

  // Unmap chunks in which no block lives; returns their bytes.
  size_t trim();

  size_t live() const { return live_; }
  size_t mapped() const;
  size_t reserved() const;

  // Places of the blocks in use, (address, size) in ascending order; neighbours closer than a small
  // gap are joined.
  std::vector<std::pair<CUdeviceptr, size_t>> used() const;

  std::vector<Pages*> pages() const;

 private:
  struct Region {
    Region(std::shared_ptr<Device> device, size_t size, size_t chunk)
        : pages(std::move(device), size, chunk), users(pages.chunks()) {}
    Pages pages;
    std::vector<uint32_t> users;  // blocks in use that touch a chunk
  };

  struct Block {
    size_t size;
    bool free;
    Region* region;
  };

  using Blocks = std::map<CUdeviceptr, Block>;

  static size_t class_of(size_t size);
  Blocks::iterator find_free(size_t size);
  Blocks::iterator add_region(size_t size);
  Blocks::iterator join(Blocks::iterator left, Blocks::iterator right);
  std::pair<size_t, size_t> chunks_under(Blocks::const_iterator block) const;
  void keep(Blocks::iterator block);
  void take(Blocks::iterator block);

  std::shared_ptr<Device> device_;
  size_t chunk_;
  size_t region_;
  size_t live_ = 0;
  std::vector<std::unique_ptr<Region>> regions_;
  Blocks blocks_;
  std::vector<std::set<CUdeviceptr>> classes_;  // free blocks
};

}  // namespace vcc
