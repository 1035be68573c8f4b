// Modules of the double: a cubin's functions, parameters and launch limits are read from its ELF.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fake.h"

namespace fake {

namespace {

std::map<CUmodule, std::unique_ptr<Module>> modules;
std::set<const Function*> functions;

struct Section {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry;
};
static_assert(sizeof(Section) == 64);

template <class T>
T at(const char* image, size_t offset) {
  T value;
  std::memcpy(&value, image + offset, sizeof value);
  return value;
}

// EM_CUDA; where the architecture stands depends on the ABI version of the ELF header.
int arch_of(const char* image) {
  const auto flags = at<uint32_t>(image, 48);
  return static_cast<int>(image[8] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
}

// .nv.info.<function>: entries {u8 format, u8 attribute, u16 size or value, payload of format 4}.
void read_info(const char* data, size_t size, Function& function) {
  for (size_t offset = 0; offset + 4 <= size;) {
    const uint8_t format = static_cast<uint8_t>(data[offset]);
    const uint8_t attribute = static_cast<uint8_t>(data[offset + 1]);
    const uint16_t bytes = at<uint16_t>(data, offset + 2);
    const char* payload = data + offset + 4;
    offset += 4 + (format == 4 ? bytes : 0);
    if (format == 4 && attribute == 0x17) {  // KPARAM_INFO
      const auto index = at<uint16_t>(payload, 4);
      if (function.parameters.size() <= index) function.parameters.resize(index + 1u);
      function.parameters[index] = {at<uint16_t>(payload, 6), at<uint32_t>(payload, 8) >> 18};
    } else if (format == 3 && attribute == 0x19) {  // CBANK_PARAM_SIZE
      function.parameter_bytes = bytes;
    } else if (format == 4 && attribute == 0x10) {  // REQNTID
      for (int i = 0; i < 3; ++i) function.required[i] = at<uint32_t>(payload, 4u * i);
    } else if (format == 4 && attribute == 0x05) {  // MAX_THREADS
      function.threads =
          at<uint32_t>(payload, 0) * at<uint32_t>(payload, 4) * at<uint32_t>(payload, 8);
    }
  }
}

bool starts(const std::string& text, const char* with, std::string* rest) {
  const size_t length = std::strlen(with);
  if (text.compare(0, length, with) != 0) return false;
  *rest = text.substr(length);
  return true;
}

CUresult read_module(const char* image, Module& module) {
  if (std::memcmp(image, "\177ELF\2\1\1", 7) != 0 || at<uint16_t>(image, 18) != 190) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (arch_of(image) != capability()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const auto table = at<uint64_t>(image, 40);
  const auto count = at<uint16_t>(image, 60), names_at = at<uint16_t>(image, 62);
  std::vector<Section> sections;
  for (size_t i = 0; i < count; ++i) sections.push_back(at<Section>(image, table + i * 64));
  if (names_at >= count) return CUDA_ERROR_INVALID_IMAGE;
  const char* names = image + sections[names_at].offset;
  std::string name;
  for (const Section& section : sections) {
    if (!starts(names + section.name, ".text.", &name)) continue;
    auto function = std::make_unique<Function>();
    function->name = name;
    function->module = &module;
    module.functions[name] = std::move(function);
  }
  for (const Section& section : sections) {
    const std::string full = names + section.name;
    if (starts(full, ".nv.info.", &name) && module.functions.count(name) != 0) {
      read_info(image + section.offset, section.size, *module.functions[name]);
    } else if (starts(full, ".nv.shared.", &name) && module.functions.count(name) != 0) {
      module.functions[name]->shared = static_cast<int>(section.size);
    }
  }
  return module.functions.empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

int dynamic_limit(const Function& function) {
  const auto found = function.attributes.find(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return found == function.attributes.end() ? 49152 - function.shared : found->second;
}

bool wrong_block(const Launch& launch) {
  const Function& function = *launch.function;
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > function.threads) return true;
  if (launch.block[0] > 1024 || launch.block[1] > 1024 || launch.block[2] > 64) return true;
  return function.required[0] != 0 &&
         !std::equal(launch.block, launch.block + 3, function.required);
}

bool wrong_grid(const Launch& launch) {
  const unsigned* grid = launch.grid;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return true;
  if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return true;
  const auto cluster = launch.attributes.find(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  if (cluster == launch.attributes.end() || cluster->second.clusterDim.x == 0) return false;
  const auto& size = cluster->second.clusterDim;
  return size.y == 0 || size.z == 0 || grid[0] % size.x != 0 || grid[1] % size.y != 0 ||
         grid[2] % size.z != 0;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(byte));
    text += pair;
  }
  return text;
}

std::string three(const unsigned* values) {
  return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," +
         std::to_string(values[2]);
}

}  // namespace

bool known(const Function* function) { return functions.count(function) != 0; }

CUresult check(const Launch& launch) {
  if (!known(launch.function)) return CUDA_ERROR_INVALID_HANDLE;
  if (wrong_block(launch) || wrong_grid(launch)) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<int64_t>(launch.shared) > dynamic_limit(*launch.function)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult take_parameters(Launch& launch, void** parameters, void** extra) {
  const Function& function = *launch.function;
  launch.parameters.assign(function.parameter_bytes, '\0');
  if (parameters != nullptr) {
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const Parameter& parameter = function.parameters[i];
      std::memcpy(&launch.parameters[parameter.offset], parameters[i], parameter.size);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) {
    return function.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  const char* bytes = nullptr;
  size_t size = 0;
  for (; *extra != kLaunchParamEnd; extra += 2) {
    if (extra[0] == kLaunchParamBufferPointer) bytes = static_cast<const char*>(extra[1]);
    if (extra[0] == kLaunchParamBufferSize) size = *static_cast<size_t*>(extra[1]);
  }
  if (bytes == nullptr || size > function.parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(launch.parameters.data(), bytes, size);
  return CUDA_SUCCESS;
}

// Called for every kernel that runs, with its parameter block: what it does to memory.
static void (*on_launch)(const char* name, const void* parameters) = nullptr;

CUresult run(const Launch& launch) {
  if (const CUresult failed = check(launch)) return failed;
  if (on_launch != nullptr) on_launch(launch.function->name.c_str(), launch.parameters.data());
  log_launch(launch.function->name + " grid=" + three(launch.grid) +
             " block=" + three(launch.block) + " shared=" + std::to_string(launch.shared) +
             " words=" + hex(launch.parameters));
  if (pending_fault != 0) std::swap(fault, pending_fault);
  return CUDA_SUCCESS;
}

void reset_modules() {
  modules.clear();
  functions.clear();
}

}  // namespace fake

using namespace fake;

#define ENTER(name)                    \
  const std::lock_guard guard(lock()); \
  if (const CUresult refused = enter(name)) return refused

// Called with each loaded image, before the call that loads it returns; for a double of CUPTI.
static void (*on_module)(CUmodule* handle, const void* image) = nullptr;

FAKE_API void fake_on_launch(void (*hook)(const char* name, const void* parameters)) {
  fake::on_launch = hook;
}

FAKE_API void fake_on_module(void (*hook)(CUmodule* handle, const void* image)) {
  on_module = hook;
}

static Function* as_function(CUfunction handle) { return reinterpret_cast<Function*>(handle); }

FAKE_API CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  ENTER("cuModuleLoadData");
  auto module = std::make_unique<Module>();
  if (const CUresult failed = read_module(static_cast<const char*>(image), *module)) return failed;
  for (const auto& [_, function] : module->functions) functions.insert(function.get());
  *handle = reinterpret_cast<CUmodule>(module.get());
  modules[*handle] = std::move(module);
  if (on_module != nullptr) on_module(handle, image);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleUnload(CUmodule handle) {
  ENTER("cuModuleUnload");
  const auto found = modules.find(handle);
  if (found == modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [_, function] : found->second->functions) functions.erase(function.get());
  modules.erase(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  ENTER("cuModuleGetFunction");
  const auto module = modules.find(handle);
  if (module == modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->second->functions.find(name);
  if (found == module->second->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(found->second.get());
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                     CUfunction handle) {
  ENTER("cuFuncGetAttribute");
  if (!known(as_function(handle))) return CUDA_ERROR_INVALID_HANDLE;
  const Function& function = *as_function(handle);
  const std::map<int, int> facts = {
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, static_cast<int>(function.threads)},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.shared},
      {CU_FUNC_ATTRIBUTE_BINARY_VERSION, capability()},
      {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1},
  };
  const auto set = function.attributes.find(attribute);
  const auto fact = facts.find(attribute);
  *value = set != function.attributes.end() ? set->second : fact != facts.end() ? fact->second : 0;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (!known(as_function(handle))) return CUDA_ERROR_INVALID_HANDLE;
  Function& function = *as_function(handle);
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
      (value < 0 || value + function.shared > 232448)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function.attributes[attribute] = value;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  ENTER("cuFuncGetModule");
  if (!known(as_function(handle))) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(as_function(handle)->module);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetName(const char** name, CUfunction handle) {
  ENTER("cuFuncGetName");
  if (!known(as_function(handle))) return CUDA_ERROR_INVALID_HANDLE;
  *name = as_function(handle)->name.c_str();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset,
                                     size_t* size) {
  ENTER("cuFuncGetParamInfo");
  if (!known(as_function(handle))) return CUDA_ERROR_INVALID_HANDLE;
  const Function& function = *as_function(handle);
  if (index >= function.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.parameters[index].offset;
  if (size != nullptr) *size = function.parameters[index].size;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  ENTER("cuKernelGetFunction");
  *function = reinterpret_cast<CUfunction>(kernel);
  return known(as_function(*function)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult launch_on(CUstream handle, Launch launch, void** parameters, void** extra) {
  Stream* stream = nullptr;
  if (const CUresult failed = find(handle, &stream)) return failed;
  if (const CUresult failed = check(launch)) return failed;
  if (const CUresult failed = take_parameters(launch, parameters, extra)) return failed;
  if (!stream->capture) return run(launch);
  auto node = std::make_unique<Node>();
  node->type = CU_GRAPH_NODE_TYPE_KERNEL;
  node->launch = std::move(launch);
  return record(*stream, std::move(node));
}

FAKE_API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                 CUstream stream, void** parameters, void** extra) {
  ENTER("cuLaunchKernel");
  Launch launch = {as_function(function), {gx, gy, gz}, {bx, by, bz}, shared, {}, {}};
  return launch_on(stream, std::move(launch), parameters, extra);
}

FAKE_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                   void** parameters, void** extra) {
  ENTER("cuLaunchKernelEx");
  Launch launch = {as_function(function),
                   {config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes,
                   {},
                   {}};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    launch.attributes[config->attrs[i].id] = config->attrs[i].value;
  }
  return launch_on(config->hStream, std::move(launch), parameters, extra);
}
