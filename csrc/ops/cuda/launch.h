// Kernels of csrc/kernels launched through the driver, on torch's current stream.
//
// libcuda is opened when the first kernel is launched, so the library loads where there is none.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace vcc::cuda {

using torch::stable::Tensor;

// Keep an operator's cubin for an architecture (90 for sm_90a); name and cubin are bytes [n] on the
// CPU. Python reads and verifies them.
void add_kernel(const Tensor& op, int64_t arch, const Tensor& cubin);

// Another file than libcuda.so.1; before the first launch.
void use_driver(const Tensor& path);

// One launch: its parameters in order, each as the kernel's signature has it.
class Launch {
 public:
  explicit Launch(const char* op) : op_(op) {}

  Launch& tensor(const Tensor& t);
  Launch& i32(int64_t value);  // throws where it does not fit
  Launch& i64(int64_t value);
  Launch& f32(double value);

  // Nothing is launched for no blocks. Throws: no cubin, no driver, or what the driver says.
  void run(const std::string& symbol, int64_t blocks, int threads, const Tensor& on);

 private:
  uint64_t& next();

  const char* op_;
  std::array<uint64_t, 32> words_{};
  size_t count_ = 0;
};

}  // namespace vcc::cuda
