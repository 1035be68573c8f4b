#include "player/modules.h"

#include <algorithm>

#include "abi/error.h"
#include "driver/driver.h"
#include "player/cubin.h"

namespace vcc {
namespace {

constexpr uint32_t kSharedWithoutAsking = 48 << 10;

// The end of the list is an error of the driver's, so this is no VCC_CU; `end` is what it was.
std::vector<Function::Slot> slots_of(CUfunction function, CUresult& end) {
  std::vector<Function::Slot> slots;
  size_t offset = 0, bytes = 0;
  for (;;) {
    end = driver().cuFuncGetParamInfo(function, slots.size(), &offset, &bytes);
    if (end != CUDA_SUCCESS) return slots;
    slots.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
  }
}

[[noreturn]] void refuse_parameters(const KernelNeeds& needs, const char* who, uint32_t found) {
  throw Error(Code::kIntegrity,
              "kernel " + std::string(needs.function) + " takes other parameters than its table",
              "the table has " + std::to_string(needs.param_bytes) + " bytes, " + who + " says " +
                  std::to_string(found),
              "rebuild the artifact: vcc compile");
}

}  // namespace

Modules::~Modules() {
  for (auto& [digest, module] : modules_) {
    if (module.handle != nullptr) driver().cuModuleUnload(module.handle);
  }
}

void Modules::add(std::string_view digest, std::span<const uint8_t> cubin) {
  const std::lock_guard lock(lock_);
  if (modules_.contains(digest)) return;
  Module module;
  module.bytes = cubin.size();
  module.parameters = cubin_parameters(cubin);
  auto& kept = modules_.emplace(digest, std::move(module)).first->second;
  try {
    VCC_CU(cuModuleLoadData(&kept.handle, cubin.data()));
  } catch (...) {
    modules_.erase(std::string(digest));
    throw;
  }
}

size_t Modules::modules() const {
  const std::lock_guard lock(lock_);
  return modules_.size();
}

const Function& Modules::function(const KernelNeeds& needs) {
  const std::lock_guard lock(lock_);
  const auto at = modules_.find(needs.digest);
  if (at == modules_.end()) {
    throw Error(Code::kIntegrity, "the artifact lacks a cubin",
                "kernel " + std::string(needs.function) + " needs " + std::string(needs.digest),
                "rebuild it: vcc compile");
  }
  Module& module = at->second;
  const auto declared = module.parameters.find(needs.function);
  if (declared == module.parameters.end()) {
    throw Error(Code::kIntegrity, "a cubin has no kernel " + std::string(needs.function),
                "it is not among the functions of " + std::string(needs.digest),
                "rebuild the artifact: vcc compile");
  }
  if (declared->second != needs.param_bytes) {
    refuse_parameters(needs, "the cubin", declared->second);
  }
  auto& made = module.functions[std::string(needs.function)];
  if (made == nullptr) {
    auto fresh = std::make_unique<Function>();
    fresh->name = needs.function;
    VCC_CU(cuModuleGetFunction(&fresh->handle, module.handle, fresh->name.c_str()));
    CUresult end = CUDA_SUCCESS;
    fresh->slots = slots_of(fresh->handle, end);
    for (const auto& slot : fresh->slots) {
      fresh->param_bytes = std::max(fresh->param_bytes, slot.offset + slot.bytes);
    }
    // A call that failed in the middle says nothing against the artifact.
    if (fresh->param_bytes != needs.param_bytes && end != CUDA_ERROR_INVALID_VALUE) {
      fail_call(end, "cuFuncGetParamInfo", __FILE__, __LINE__);
    }
    made = std::move(fresh);
  }
  if (made->param_bytes != needs.param_bytes) {
    refuse_parameters(needs, "the driver", made->param_bytes);
  }
  uint32_t& shared = module.shared[made->name];
  if (needs.shared > kSharedWithoutAsking && needs.shared > shared) {
    VCC_CU(cuFuncSetAttribute(made->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              static_cast<int>(needs.shared)));
    shared = needs.shared;
  }
  if (needs.carveout >= 0) {
    VCC_CU(cuFuncSetAttribute(made->handle, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                              needs.carveout));
  }
  if (needs.large_cluster) {
    VCC_CU(
        cuFuncSetAttribute(made->handle, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  }
  return *made;
}

}  // namespace vcc
