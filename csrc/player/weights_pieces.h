// A weight upload as data: files, copies, and the pieces that fit a slot of the pinned ring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "player/weights_convert.h"

namespace vcc::weights {

// One copy, written by engine/runtime/player/weight_plan.py. `rows` and `columns` count elements of
// the source rectangle; all other numbers are bytes. One column with a source stride of 0 is one
// element for all rows. A transposed copy writes `columns` rows of `rows` elements. `more` such
// rectangles lie behind its first, in the file and in the region, without gaps in any of them.
struct Copy {
  uint32_t file;  // kConstants: the block of constants
  uint16_t from;
  uint16_t to;
  uint32_t transposed;
  uint32_t more;
  uint64_t source;
  uint64_t destination;
  uint64_t rows;
  uint64_t columns;
  uint64_t source_stride;
  uint64_t destination_stride;
};
static_assert(sizeof(Copy) == 64);

inline constexpr uint32_t kConstants = 0xffffffffu;

// Where the bytes come from: open files, then the constants of the artifact.
class Sources {
 public:
  // `paths`: one after another, each ended by a zero byte; `least`: bytes each file must have.
  // Throws Error: a file cannot be opened, or is shorter than its header said.
  Sources(const char* paths, uint64_t path_bytes, const uint64_t* least, uint32_t files,
          const char* constants, uint64_t constant_bytes);
  ~Sources();
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  bool has(uint32_t file) const { return file == kConstants || file < files_.size(); }
  uint64_t size(uint32_t file) const;
  // Exactly `bytes` from `offset` on. Throws Error: the file became shorter, or cannot be read.
  void read(uint32_t file, uint64_t offset, uint64_t bytes, char* into) const;

 private:
  struct File {
    std::string path;
    int handle;
    uint64_t size;
  };
  void open(const char* path, uint64_t least);
  void close_all() noexcept;

  std::vector<File> files_;
  const char* constants_;
  uint64_t constant_bytes_;
};

// A part of a copy: a rectangle of its source, or several whole ones.
struct Piece {
  const Copy* copy;
  uint64_t first_plane;
  uint64_t planes;
  uint64_t first_row;
  uint64_t rows;
  uint64_t first_column;
  uint64_t columns;
};

// A run of bytes in a slot and where in the region it goes.
struct Run {
  uint64_t slot;
  uint64_t destination;
  uint64_t bytes;
};

// Check the copies against files and region, and make those without gaps a single row.
// Throws Error: a copy that is not what the header above says, or leaves its file or the region.
std::vector<Copy> checked(const Copy* copies, uint64_t count, const Sources& sources,
                          uint64_t region_bytes);

// Pieces of which neither the source nor the result has more than `slot_bytes`.
std::vector<Piece> cut(const std::vector<Copy>& copies, uint64_t slot_bytes);

// Read and convert a piece into a slot. `scratch` has as many bytes as a slot.
// Returns the runs of its result.
void fill(const Piece& piece, const Sources& sources, char* slot, char* scratch,
          std::vector<Run>& runs);

}  // namespace vcc::weights
