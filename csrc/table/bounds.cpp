// Where what a table names begins and ends, at given sizes.
#include "table/records.h"

namespace vcc::table {

namespace {

using Wide = __int128;  // products of sizes and lengths below never exceed 127 bits

void check_tensor(const Records& records, uint64_t index, std::span<const int64_t> values) {
  const Tensor& tensor = records.tensors[index];
  const int64_t item = kItemSizes[tensor.dtype], offset = values[tensor.offset];
  Wide length = item;
  for (const uint32_t dim : records.lists.subspan(tensor.first_dim, tensor.dims)) {
    length *= values[dim];
    if (length > INT64_MAX) refuse(SectionKind::kTensors, index, "beyond 63 bits");
  }
  if (offset + length > values[records.regions[tensor.region].size])
    refuse(SectionKind::kTensors, index, "ends outside its region");
  if (offset % item != 0)
    refuse(SectionKind::kTensors, index, "not at a multiple of its element's size");
}

// `length` bytes behind a pointer of node `index` lie in its region.
void reach(const Records& records, uint64_t index, const Param& param, Wide length,
           std::span<const int64_t> values) {
  if (values[param.expr] + length > values[records.regions[param.region].size])
    refuse(SectionKind::kNodes, index, "reads or writes outside a region");
}

Wide blocks(Wide size) { return (size + kScaleBlock - 1) / kScaleBlock; }

// Bytes of the scales of a, and of w.
Wide a_scales(const Gemm& gemm, Wide m) {
  constexpr Wide kItem = 4;
  if (gemm.scales == Scales::kRows) return m * kItem;
  return gemm.scales == Scales::kBlocks ? m * blocks(gemm.k) * kItem : kItem;
}

Wide w_scales(const Gemm& gemm) {
  constexpr Wide kItem = 4;
  if (gemm.scales == Scales::kTensor) return kItem;
  return gemm.scales == Scales::kBlocks ? blocks(gemm.n) * blocks(gemm.k) * kItem : gemm.n * kItem;
}

void check_gemm(const Records& records, uint64_t index, std::span<const int64_t> values) {
  const Node& node = records.nodes[index];
  const Gemm& gemm = records.gemms[node.target];
  const auto params = records.params_of(node);
  const Wide m = values[gemm.m], n = gemm.n, k = gemm.k, item = kItemSizes[gemm.dtype];
  const bool scaled = gemm.scales != Scales::kNone;
  const Wide row = n * (scaled ? Wide{kItemSizes[gemm.out]} : item);
  const Wide lengths[] = {m * k * item, n * k * item,      scaled ? row : m * row,
                          m * row,      a_scales(gemm, m), w_scales(gemm)};
  for (const Param& param : params) reach(records, index, param, lengths[param.offset / 8], values);
}

void check_memset(const Records& records, uint64_t index, std::span<const int64_t> values) {
  const Node& node = records.nodes[index];
  const auto params = records.params_of(node);
  const Wide item = values[params[2].expr], width = values[params[3].expr];
  const Wide height = values[params[4].expr], pitch = values[params[5].expr];
  if (height > 1 && pitch < width * item)
    refuse(SectionKind::kParams, node.first_param + 5, "rows overlap");
  const bool empty = width == 0 || height == 0;
  reach(records, index, params[0], empty ? 0 : (height - 1) * pitch + width * item, values);
}

void check_memcpy(const Records& records, uint64_t index, std::span<const int64_t> values) {
  const auto params = records.params_of(records.nodes[index]);
  for (const Param& param : params.first(2))
    reach(records, index, param, values[params[2].expr], values);
}

}  // namespace

void check_bounds(const Records& records, std::span<const int64_t> values) {
  for (uint64_t index = 0; index < records.tensors.size(); ++index)
    check_tensor(records, index, values);
  for (uint64_t index = 0; index < records.params.size(); ++index) {
    const Param& param = records.params[index];
    if (param.kind == ParamKind::kPointer &&
        values[param.expr] > values[records.regions[param.region].size])
      refuse(SectionKind::kParams, index, "points outside its region");
  }
  for (uint64_t index = 0; index < records.nodes.size(); ++index) {
    const NodeKind kind = records.nodes[index].kind;
    if (kind == NodeKind::kGemm) check_gemm(records, index, values);
    if (kind == NodeKind::kMemset) check_memset(records, index, values);
    if (kind == NodeKind::kMemcpy) check_memcpy(records, index, values);
  }
}

}  // namespace vcc::table
