// A library that is looked for in several places and need not be there.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "abi/error.h"

namespace vcc::recorder {

class Library {
 public:
  // The first candidate that loads. Throws Code::kDevice with every place that was tried.
  Library(const std::vector<std::string>& candidates, const std::string& name,
          const std::string& hint);

  // A function of it, as a typed pointer. Throws Code::kDevice by name when it is not there.
  template <class Pointer>
  Pointer function(const char* name) const {
    return reinterpret_cast<Pointer>(address(name));
  }

  const std::string& path() const { return path_; }

 private:
  void* address(const char* name) const;

  std::string name_;
  std::string path_;
  void* handle_ = nullptr;
};

// Lines of a text; empty ones are left out.
std::vector<std::string> lines_of(const char* text);

}  // namespace vcc::recorder
