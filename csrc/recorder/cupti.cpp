#include "recorder/cupti.h"

#include <functional>
#include <string_view>

#include "abi/error.h"
#include "recorder/library.h"

namespace vcc::recorder {

namespace {

// What is used of cupti_callbacks.h and of the tables of driver calls, as of CUDA 12 and 13.
constexpr int kDriverApi = 1;
constexpr int kResource = 3;
constexpr uint32_t kModuleLoaded = 6;
constexpr uint32_t kModuleLoads[] = {18, 19, 20, 21};  // cuModuleLoad, …Data, …DataEx, …FatBinary
constexpr int kEnter = 0;

struct CallbackData {
  int site;
  const char* function;
  const void* parameters;
};

struct ResourceData {
  void* context;
  void* handle;
  void* descriptor;
};

struct ModuleData {
  uint32_t id;
  size_t size;
  const char* cubin;
};

struct LoadParameters {  // the first field of the parameters of every call in kModuleLoads
  void** module;
};

using Callback = void (*)(void*, int, uint32_t, const void*);

constexpr size_t kNothing = SIZE_MAX;
thread_local size_t last_loaded = kNothing;  // by the driver call that is under way in this thread

uint64_t hash_of(const std::string& bytes) {
  return std::hash<std::string_view>{}(std::string_view(bytes));
}

}  // namespace

Cubins& Cubins::of_process() {
  static auto* const kept = new Cubins;  // never destroyed: the driver may call at exit
  return *kept;
}

const std::string& Cubins::subscribe(const std::vector<std::string>& candidates) {
  if (!path_.empty()) return path_;
  const Library library(candidates, "CUPTI",
                        "install nvidia-cuda-cupti or the CUDA toolkit; artifacts built without a "
                        "GPU and the Triton matrix products work without it");
  const auto subscribe_to = library.function<int (*)(void**, Callback, void*)>("cuptiSubscribe");
  const auto enable =
      library.function<int (*)(uint32_t, void*, int, uint32_t)>("cuptiEnableCallback");
  void* subscriber = nullptr;
  int code = subscribe_to(&subscriber, &Cubins::on_event, this);
  for (uint32_t id : kModuleLoads) {
    if (code == 0) code = enable(1, subscriber, kDriverApi, id);
  }
  if (code == 0) code = enable(1, subscriber, kResource, kModuleLoaded);
  if (code != 0) {
    throw Error(Code::kDevice, "CUPTI refuses to watch for loaded kernels",
                "it answered " + std::to_string(code) + " (" + library.path() + ")",
                "another profiler in this process would be a reason: run without it");
  }
  path_ = library.path();
  return path_;
}

void Cubins::on_event(void* self, int domain, uint32_t id, const void* data) {
  auto* const cubins = static_cast<Cubins*>(self);
  if (domain == kDriverApi) {
    cubins->on_driver_call(id, data);
  } else if (domain == kResource && id == kModuleLoaded) {
    cubins->on_module(data);
  }
}

void Cubins::on_driver_call(uint32_t, const void* data) {
  const auto* call = static_cast<const CallbackData*>(data);
  if (call->site == kEnter) {
    last_loaded = kNothing;
    return;
  }
  if (last_loaded == kNothing) return;
  void** const module = static_cast<const LoadParameters*>(call->parameters)->module;
  if (module == nullptr || *module == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  by_module_[*module] = last_loaded;  // a handle may return after an unload: the last one counts
}

void Cubins::on_module(const void* data) {
  const auto* resource = static_cast<const ResourceData*>(data);
  const auto* module = static_cast<const ModuleData*>(resource->descriptor);
  if (module == nullptr || module->cubin == nullptr || module->size == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  last_loaded = keep(std::string(module->cubin, module->size));
}

size_t Cubins::keep(std::string cubin) {
  const uint64_t hash = hash_of(cubin);
  for (auto [at, end] = by_hash_.equal_range(hash); at != end; ++at) {
    if (cubins_[at->second] == cubin) return at->second;
  }
  by_hash_.emplace(hash, cubins_.size());
  cubins_.push_back(std::move(cubin));
  by_name_.clear();  // a name that was unique may not be so any more
  return cubins_.size() - 1;
}

size_t Cubins::find(const void* module, const std::string& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto known = by_module_.find(module); known != by_module_.end()) return known->second;
  if (const auto known = by_name_.find(function); known != by_name_.end()) return known->second;
  const std::string section(".text." + function + '\0');
  std::vector<size_t> fit;
  for (size_t index = 0; index < cubins_.size(); ++index) {
    if (cubins_[index].find(section) != std::string::npos) fit.push_back(index);
  }
  if (fit.size() != 1) {
    throw Error(Code::kGraph, "the code of kernel " + function + " cannot be stored",
                fit.empty() ? "no loaded cubin has it: it was loaded before the recorder began"
                            : std::to_string(fit.size()) + " different loaded cubins have it");
  }
  by_name_[function] = fit[0];
  return fit[0];
}

size_t Cubins::count() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cubins_.size();
}

std::string Cubins::copy(size_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index >= cubins_.size()) throw Error(Code::kUsage, "no cubin has this number");
  return cubins_[index];
}

}  // namespace vcc::recorder
