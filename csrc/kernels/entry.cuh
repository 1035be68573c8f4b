// An operator's kernels are plain functions, one for each element type: vcc_<form>_<type>.
#pragma once

#include "types.cuh"

#define VCC_EACH_TYPE(DEFINE) DEFINE(bf16, vcc::bf16) DEFINE(fp16, vcc::fp16) DEFINE(fp32, float)

// Kernels that keep a row in registers: how many chunks a thread keeps, threads of a block, and how
// many blocks a multiprocessor must hold, which bounds the registers. Rows of up to 8192 values
// leave room for enough blocks to keep memory busy; wide ones, of up to 16384, have their own.
#define VCC_EACH_ROW(DEFINE)              \
  DEFINE(bf16, vcc::bf16, 4, 256, 4)      \
  DEFINE(fp16, vcc::fp16, 4, 256, 4)      \
  DEFINE(fp32, float, 4, 512, 2)          \
  DEFINE(wide_bf16, vcc::bf16, 4, 512, 2) \
  DEFINE(wide_fp16, vcc::fp16, 4, 512, 2) \
  DEFINE(wide_fp32, float, 4, 1024, 1)

// The same of gates, which keep results only: a thread takes more of a wide row, in two turns, so
// that more rows are under way.
#define VCC_EACH_GATED_ROW(DEFINE)        \
  DEFINE(bf16, vcc::bf16, 4, 256, 4)      \
  DEFINE(fp16, vcc::fp16, 4, 256, 4)      \
  DEFINE(fp32, float, 4, 512, 2)          \
  DEFINE(wide_bf16, vcc::bf16, 8, 256, 4) \
  DEFINE(wide_fp16, vcc::fp16, 8, 256, 4) \
  DEFINE(wide_fp32, float, 8, 512, 1)

// Fewer blocks, and so more registers, for what keeps more beside the row.
#define VCC_FEWER(blocks) (blocks > 1 ? blocks - 1 : 1)

// The same where an architecture's compiler needs more registers for the same code than others do.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1000 || __CUDA_ARCH__ < 900)
#define VCC_TIGHT(blocks) VCC_FEWER(blocks)
#else
#define VCC_TIGHT(blocks) blocks
#endif

// Blocks of 256 threads for what needs few registers: where a multiprocessor has 2048 threads, all
// of them.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1200 || __CUDA_ARCH__ < 900)
#define VCC_FULL 5
#else
#define VCC_FULL 8
#endif

// A kernel of `threads` threads at most. On the host it is also known by its name.
#ifdef VCC_KERNEL_HOST
#define VCC_KERNEL(threads, blocks, name, ...)                     \
  extern "C" void name(__VA_ARGS__);                               \
  static const host::Entry entry_of_##name(#name, threads, &name); \
  extern "C" void name(__VA_ARGS__)
#else
#define VCC_KERNEL(threads, blocks, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#endif
