#include "error.h"

#include <new>

#include "vcc.h"

namespace vcc {

namespace {

thread_local std::string error_text;
thread_local std::string result_text;

std::string source_place(const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line);
}

}  // namespace

void fail_expectation(const char* condition, const char* text, const char* file, int line) {
  throw Error(Code::kInternal, text, std::string(condition) + " at " + source_place(file, line),
              "this is a defect of vcc: please report it");
}

int32_t keep_error(const Error& error) noexcept {
  try {
    error_text = error.task + '\x1f' + error.why + '\x1f' + error.hint + '\x1f' + error.kind;
  } catch (...) {
    error_text.clear();  // no memory for a text: the code still says which kind it is
  }
  return static_cast<int32_t>(error.code);
}

int32_t keep_current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep_error(error);
  } catch (const std::bad_alloc&) {
    error_text.assign("out of host memory");  // fits what a string holds in place or held before
    return static_cast<int32_t>(Code::kDevice);
  } catch (const std::exception& error) {
    return keep_error(Error(Code::kInternal, "the native library failed", error.what()));
  } catch (...) {
    return keep_error(Error(Code::kInternal, "the native library failed"));
  }
}

const char* keep_text(std::string text) {
  result_text = std::move(text);
  return result_text.c_str();
}

}  // namespace vcc

const char* vcc_error_text(void) { return vcc::error_text.c_str(); }
