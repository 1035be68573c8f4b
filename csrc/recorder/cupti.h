// Every cubin that the driver loads in this process, kept by a CUPTI subscription: cuBLAS's and
// Triton's alike. Only for processes that build and exit: a subscription makes cuGraphLaunch about
// twenty times dearer, and unsubscribing does not undo it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace vcc::recorder {

// The subscription of this process; CUPTI allows one.
class Cubins {
 public:
  static Cubins& of_process();

  // Load CUPTI from the first candidate that loads and subscribe; a second call changes nothing.
  // Returns the path that was taken.
  const std::string& subscribe(const std::vector<std::string>& candidates);

  // The cubin of a function: by the handle of its module, else the only one that has `.text.<name>`
  // (kernels of libraries that the runtime loads lazily). Throws by name when there is none, or
  // when several differ.
  size_t find(const void* module, const std::string& function);

  size_t count();
  std::string copy(size_t index);

 private:
  static void on_event(void* self, int domain, uint32_t id, const void* data);
  void on_driver_call(uint32_t id, const void* data);
  void on_module(const void* data);
  size_t keep(std::string cubin);

  std::mutex mutex_;
  std::string path_;
  std::vector<std::string> cubins_;
  std::multimap<uint64_t, size_t> by_hash_;
  std::map<const void*, size_t> by_module_;
  std::map<std::string, size_t> by_name_;
};

}  // namespace vcc::recorder
