#include "recorder/library.h"

namespace vcc::recorder {

Library::Library(const std::vector<std::string>& candidates, const std::string& name,
                 const std::string& hint)
    : name_(name) {
  std::string tried;
  for (const std::string& path : candidates) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = path;
      return;
    }
    const char* reason = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(reason == nullptr ? path : reason);
  }
  throw Error(Code::kDevice, name + " is not on this machine",
              tried.empty() ? "no place to look was given" : tried, hint);
}

void* Library::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) {
    throw Error(Code::kDevice, path_ + " cannot be used", std::string("it has no ") + name,
                "install a " + name_ + " of CUDA 12 or 13");
  }
  return found;
}

std::vector<std::string> lines_of(const char* text) {
  std::vector<std::string> lines;
  std::string line;
  for (const char* at = text == nullptr ? "" : text; *at != '\0'; ++at) {
    if (*at != '\n') {
      line += *at;
    } else if (!line.empty()) {
      lines.push_back(std::move(line));
      line.clear();
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace vcc::recorder
