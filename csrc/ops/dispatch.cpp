// The kernel table for this machine, and a way to ask for a lower one.
#include <atomic>

#include "../abi/cpu_level.h"
#include "cpu/kernels.h"

namespace vcc {

#if defined(__x86_64__)
namespace v2 {
extern const Kernels kTable;
}
namespace v3 {
extern const Kernels kTable;
}
namespace v4 {
extern const Kernels kTable;
}
namespace {
const Kernels* table_for(int level) {
  return level >= 4 ? &v4::kTable : level == 3 ? &v3::kTable : &v2::kTable;
}
}  // namespace
#else
namespace base {
extern const Kernels kTable;
}
namespace {
const Kernels* table_for(int) { return &base::kTable; }
}  // namespace
#endif

namespace {
std::atomic<const Kernels*>& active() {
  static std::atomic<const Kernels*> table{table_for(cpu_level())};
  return table;
}
}  // namespace

#if defined(VCC_HAS_PAIRS)
namespace v4pairs {
extern const ExpertKernels kPairs;
}
#endif

const ExpertKernels& expert_kernels(Dtype dtype) {
#if defined(VCC_HAS_PAIRS)
  static const bool pairs = __builtin_cpu_supports("avx512bf16");
  if (pairs && dtype == kBFloat16 && &kernels() == &v4::kTable) return v4pairs::kPairs;
#endif
  return kernels().experts[dtype];
}

const Kernels& kernels() { return *active().load(std::memory_order_relaxed); }

}  // namespace vcc

// Use the kernels of x86-64 level `level` (2, 3, 4), at most what the CPU has; returns the level in
// use. For tests, which run every variant on one machine.
extern "C" __attribute__((visibility("default"))) int vcc_ops_use_level(int level) {
  const int own = vcc::cpu_level();
  const int used = level < own ? level : own;
  vcc::active().store(vcc::table_for(used));
  return used;
}
