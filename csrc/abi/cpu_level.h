// Which x86-64 level this CPU and its operating system can run. Shared by both libraries, so that
// what `vcc_cpu_level()` answers is what the kernels are chosen by.
#pragma once

namespace vcc {

// The levels are named by the instructions that the compiler can emit for them. The builtins also
// check that the operating system saves the wide registers.
inline int cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool level3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool level4 = level3 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return level4 ? 4 : level3 ? 3 : 2;
#else
  return 0;
#endif
}

}  // namespace vcc
