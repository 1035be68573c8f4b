// A double of CUPTI over the double of libcuda: tells a subscriber about every module that is
// loaded, in the order of the real one (the call begins, the module, the call ends).
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#define API extern "C" __attribute__((visibility("default")))

namespace {

using Callback = void (*)(void*, int, uint32_t, const void*);

constexpr int kDriverApi = 1, kResource = 3;
constexpr uint32_t kModuleLoadData = 19, kModuleLoaded = 6;

Callback callback = nullptr;
void* user = nullptr;
std::set<std::pair<int, uint32_t>> enabled;

struct Call {
  int site;
  const char* function;
  const void* parameters;
};

struct Resource {
  void* context;
  void* handle;
  void* descriptor;
};

struct Module {
  uint32_t id;
  size_t size;
  const char* cubin;
};

template <class T>
T at(const char* image, size_t offset) {
  T value;
  std::memcpy(&value, image + offset, sizeof value);
  return value;
}

size_t size_of(const char* image) {
  const auto table = at<uint64_t>(image, 40);
  const auto count = at<uint16_t>(image, 60);
  size_t end = table + size_t{64} * count;
  for (size_t i = 0; i < count; ++i) {
    const auto type = at<uint32_t>(image, table + i * 64 + 4);
    const auto offset = at<uint64_t>(image, table + i * 64 + 24);
    const auto size = at<uint64_t>(image, table + i * 64 + 32);
    if (type != 0) end = std::max<size_t>(end, (offset + size + 15) / 16 * 16);
  }
  return end;
}

void tell(int domain, uint32_t id, const void* data) {
  if (enabled.count({domain, id}) != 0) callback(user, domain, id, data);
}

void on_module(void** handle, const void* image) {
  const struct {
    void** module;
    const void* image;
  } parameters = {handle, image};
  Call call = {0, "cuModuleLoadData", &parameters};
  Module module = {1, size_of(static_cast<const char*>(image)), static_cast<const char*>(image)};
  const Resource resource = {nullptr, nullptr, &module};
  tell(kDriverApi, kModuleLoadData, &call);
  tell(kResource, kModuleLoaded, &resource);
  call.site = 1;
  tell(kDriverApi, kModuleLoadData, &call);
}

}  // namespace

API int cuptiSubscribe(void** subscriber, Callback function, void* data) {
  const char* driver = std::getenv("VCC_LIBCUDA");
  void* const library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || callback != nullptr) return 39;  // multiple subscribers
  callback = function;
  user = data;
  *subscriber = &callback;
  using Hook = void (*)(void (*)(void**, const void*));
  reinterpret_cast<Hook>(dlsym(library, "fake_on_module"))(&on_module);
  return 0;
}

API int cuptiEnableCallback(uint32_t enable, void*, int domain, uint32_t id) {
  if (enable != 0) enabled.insert({domain, id});
  return 0;
}
