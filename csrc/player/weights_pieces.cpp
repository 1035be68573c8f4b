#include "player/weights_pieces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "abi/error.h"

namespace vcc::weights {

namespace {

Error cannot_read(const std::string& path) {
  return Error(Code::kUsage, "cannot read " + path, std::strerror(errno));
}

Error cut_short(const std::string& path, uint64_t least, uint64_t size) {
  return Error(
      Code::kUsage, path + " is only in part here",
      "its tensors end at byte " + std::to_string(least) + ", the file has " + std::to_string(size),
      "finish the download of this file");
}

Error bad_copy(const char* why) {
  return Error(Code::kIntegrity, "a weight copy is refused", why, "rebuild the artifact");
}

// a * b + c, refused where it does not fit.
uint64_t fused(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product, sum;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum)) {
    throw bad_copy("its numbers are too large");
  }
  return sum;
}

uint64_t wide(const Copy& copy) { return kElementBytes[copy.from]; }
uint64_t narrow(const Copy& copy) { return kElementBytes[copy.to]; }

// First byte after a rectangle of `rows` rows of `bytes` each, `stride` apart.
uint64_t end_of(uint64_t start, uint64_t rows, uint64_t stride, uint64_t bytes) {
  if (rows > 1 && stride < bytes) throw bad_copy("its rows overlap");
  return fused(rows - 1, stride, fused(1, bytes, start));
}

// Rectangles behind one another, `from` bytes a row and `line` bytes a row of the result.
void check_planes(const Copy& copy, const Sources& sources, uint64_t region_bytes, uint64_t from,
                  uint64_t line) {
  if (!copy.transposed) throw bad_copy("only turned rectangles lie behind one another");
  if (copy.source_stride != from || copy.destination_stride != line) {
    throw bad_copy("rectangles behind one another have gaps");
  }
  const uint64_t planes = uint64_t{copy.more} + 1;
  if (fused(fused(copy.rows, from, 0), planes, copy.source) > sources.size(copy.file)) {
    throw bad_copy("it reads behind the end of its file");
  }
  if (fused(fused(copy.columns, line, 0), planes, copy.destination) > region_bytes) {
    throw bad_copy("it writes behind the end of the weights");
  }
}

void check(const Copy& copy, const Sources& sources, uint64_t region_bytes) {
  if (copy.transposed > 1) throw bad_copy("a reserved field is set");
  if (conversion(copy.from, copy.to) == nullptr) throw bad_copy("no such conversion");
  if (!sources.has(copy.file)) throw bad_copy("no such file");
  if (copy.rows == 0 || copy.columns == 0) throw bad_copy("it is empty");
  const uint64_t from = fused(copy.columns, wide(copy), 0);
  const bool repeats = copy.source_stride == 0 && copy.columns == 1;  // one element, for all rows
  const uint64_t read_rows = repeats ? 1 : copy.rows;
  if (end_of(copy.source, read_rows, copy.source_stride, from) > sources.size(copy.file)) {
    throw bad_copy("it reads behind the end of its file");
  }
  const uint64_t lines = copy.transposed ? copy.columns : copy.rows;
  const uint64_t line = fused(copy.transposed ? copy.rows : copy.columns, narrow(copy), 0);
  if (copy.more > 0) check_planes(copy, sources, region_bytes, from, line);
  if (end_of(copy.destination, lines, copy.destination_stride, line) > region_bytes) {
    throw bad_copy("it writes behind the end of the weights");
  }
}

Copy flattened(Copy copy) {
  const bool dense = copy.source_stride == copy.columns * wide(copy) &&
                     copy.destination_stride == copy.columns * narrow(copy);
  if (!copy.transposed && dense) {
    copy.columns *= copy.rows;
    copy.rows = 1;
  }
  return copy;
}

// A plane by how many of its rows and columns one slot takes: whole lines of the result as long as
// they fit.
void cut_plane(const Copy& copy, uint64_t plane, uint64_t most, std::vector<Piece>& pieces) {
  const uint64_t line = copy.transposed ? copy.rows : copy.columns;
  const uint64_t lines = copy.transposed ? copy.columns : copy.rows;
  const uint64_t along = std::min(line, most), across = std::min(lines, most / along);
  const uint64_t rows = copy.transposed ? along : across;
  const uint64_t columns = copy.transposed ? across : along;
  for (uint64_t row = 0; row < copy.rows; row += rows) {
    for (uint64_t column = 0; column < copy.columns; column += columns) {
      pieces.push_back({&copy, plane, 1, row, std::min(rows, copy.rows - row), column,
                        std::min(columns, copy.columns - column)});
    }
  }
}

// As many whole planes as a slot takes, or parts of one.
void cut_one(const Copy& copy, uint64_t slot_bytes, std::vector<Piece>& pieces) {
  const uint64_t most = slot_bytes / std::max(wide(copy), narrow(copy));
  const uint64_t planes = uint64_t{copy.more} + 1;
  const bool whole = planes > 1 && copy.rows * copy.columns <= most;
  const uint64_t each = whole ? most / (copy.rows * copy.columns) : 1;
  for (uint64_t plane = 0; plane < planes; plane += each) {
    if (whole) {
      const uint64_t held = std::min(each, planes - plane);
      pieces.push_back({&copy, plane, held, 0, copy.rows, 0, copy.columns});
    } else {
      cut_plane(copy, plane, most, pieces);
    }
  }
}

// Whole planes: read at once, as they lie, and turned one by one. Returns the run of the result.
Run fill_planes(const Piece& piece, const Sources& sources, char* slot, char* scratch) {
  const Copy& copy = *piece.copy;
  const Convert convert = conversion(copy.from, copy.to);
  const uint64_t plane = copy.rows * copy.columns, row_bytes = copy.columns * wide(copy);
  const uint64_t offset = copy.source + piece.first_plane * plane * wide(copy);
  sources.read(copy.file, offset, piece.planes * plane * wide(copy), scratch);
  for (uint64_t i = 0; i < piece.planes; ++i) {
    for (uint64_t row = 0; row < copy.rows; ++row) {
      const char* from = scratch + i * plane * wide(copy) + row * row_bytes;
      convert(from, slot + (i * plane + row) * narrow(copy), copy.columns, copy.rows);
    }
  }
  const uint64_t start = copy.destination + piece.first_plane * plane * narrow(copy);
  return {0, start, piece.planes * plane * narrow(copy)};
}

}  // namespace

Sources::Sources(const char* paths, uint64_t path_bytes, const uint64_t* least, uint32_t files,
                 const char* constants, uint64_t constant_bytes)
    : constants_(constants), constant_bytes_(constant_bytes) {
  try {
    const char* at = paths;
    const char* end = paths + path_bytes;
    for (uint32_t i = 0; i < files; ++i) {
      const char* stop = std::find(at, end, '\0');
      VCC_EXPECT(stop != end, "a path has no end");
      open(at, least[i]);
      at = stop + 1;
    }
  } catch (...) {
    close_all();
    throw;
  }
}

Sources::~Sources() { close_all(); }

void Sources::open(const char* path, uint64_t least) {
  files_.reserve(files_.size() + 1);
  const int handle = ::open(path, O_RDONLY | O_CLOEXEC);
  if (handle < 0) throw cannot_read(path);
  files_.push_back({path, handle, 0});
  struct stat found;
  if (fstat(handle, &found) != 0) throw cannot_read(path);
  files_.back().size = static_cast<uint64_t>(found.st_size);
  if (files_.back().size < least) throw cut_short(path, least, files_.back().size);
}

void Sources::close_all() noexcept {
  for (const File& file : files_) ::close(file.handle);
  files_.clear();
}

uint64_t Sources::size(uint32_t file) const {
  return file == kConstants ? constant_bytes_ : files_[file].size;
}

void Sources::read(uint32_t file, uint64_t offset, uint64_t bytes, char* into) const {
  if (file == kConstants) {
    std::memcpy(into, constants_ + offset, bytes);
    return;
  }
  const File& source = files_[file];
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(source.handle, into + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw cannot_read(source.path);
    if (got == 0) throw cut_short(source.path, offset + bytes, offset + done);
    done += static_cast<uint64_t>(got);
  }
}

std::vector<Copy> checked(const Copy* copies, uint64_t count, const Sources& sources,
                          uint64_t region_bytes) {
  std::vector<Copy> result;
  result.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    check(copies[i], sources, region_bytes);
    result.push_back(flattened(copies[i]));
  }
  return result;
}

std::vector<Piece> cut(const std::vector<Copy>& copies, uint64_t slot_bytes) {
  VCC_EXPECT(slot_bytes >= 64, "a slot is too small");
  std::vector<Piece> pieces;
  for (const Copy& copy : copies) cut_one(copy, slot_bytes, pieces);
  return pieces;
}

void fill(const Piece& piece, const Sources& sources, char* slot, char* scratch,
          std::vector<Run>& runs) {
  const Copy& copy = *piece.copy;
  if (piece.planes > 1) {
    runs.assign(1, fill_planes(piece, sources, slot, scratch));
    return;
  }
  const Convert convert = conversion(copy.from, copy.to);
  const uint64_t plane = piece.first_plane * copy.rows * copy.columns;
  const uint64_t source = copy.source + plane * wide(copy);
  const bool through = copy.transposed || copy.from != copy.to;
  const uint64_t row_bytes = piece.columns * wide(copy);
  const uint64_t step = copy.transposed ? narrow(copy) : piece.columns * narrow(copy);
  const uint64_t stride = copy.transposed ? piece.rows : 1;
  for (uint64_t row = 0; row < piece.rows; ++row) {
    const uint64_t offset =
        source + (piece.first_row + row) * copy.source_stride + piece.first_column * wide(copy);
    char* into = slot + row * step;
    if (row > 0 && copy.source_stride == 0 && !copy.transposed) {
      std::memcpy(into, slot, step);
      continue;
    }
    sources.read(copy.file, offset, row_bytes, through ? scratch : into);
    if (through) convert(scratch, into, piece.columns, stride);
  }
  const uint64_t lines = copy.transposed ? piece.columns : piece.rows;
  const uint64_t line = (copy.transposed ? piece.rows : piece.columns) * narrow(copy);
  const uint64_t first_line = copy.transposed ? piece.first_column : piece.first_row;
  const uint64_t shift = (copy.transposed ? piece.first_row : piece.first_column) * narrow(copy);
  const uint64_t start =
      copy.destination + plane * narrow(copy) + first_line * copy.destination_stride + shift;
  runs.clear();
  if (lines == 1 || copy.destination_stride == line) {
    runs.push_back({0, start, lines * line});
    return;
  }
  for (uint64_t i = 0; i < lines; ++i) {
    runs.push_back({i * line, start + i * copy.destination_stride, line});
  }
}

}  // namespace vcc::weights
