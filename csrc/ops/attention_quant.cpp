// vcc::paged_attention_quant: attention, then its rows as float8_e4m3fn.
#include "ops.h"
#include "quant.h"

namespace vcc {

void paged_attention_quant(const Tensor& q, const Tensor& kv_cache, const Tensor& block_table,
                           const Tensor& seq_lens, const Tensor& query_start, const Tensor& out,
                           const Tensor& out_scale, double scale, int64_t sliding_window,
                           double soft_cap, std::optional<Tensor> kv_scale) {
  const char* op = "paged_attention_quant";
  check_layout(q, 2, op, "q");
  check_layout(out, 2, op, "out");
  check_type(out, kFp8, op, "out");
  check_size(out, 0, q.size(0), op, "out", "the rows of q");
  check_size(out, 1, q.size(1), op, "out", "the columns of q");
  VCC_CHECK(out.size(0) < 2 || out.stride(0) == out.size(1), op, ": out must have dense rows");
  QuantArgs args{};
  args.scale = scale_of(out_scale, op, "out_scale");
  const Tensor wide = torch::stable::new_empty(q, q.sizes());
  paged_attention(q, kv_cache, block_table, seq_lens, query_start, wide, scale, sliding_window,
                  soft_cap, kv_scale);
  args.x = wide.const_data_ptr(), args.x_stride = wide.stride(0);
  args.q = static_cast<uint8_t*>(out.mutable_data_ptr());
  args.dim = args.block = wide.size(1);
  const Dtype dtype = dtype_of(q, op, "q");
  for_rows(wide.size(0), wide.size(1),
           [&](int64_t begin, int64_t end) { kernels().quantise[dtype](args, begin, end); });
}

}  // namespace vcc
