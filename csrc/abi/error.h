// Errors inside the library and how they leave it: a code and a text "what\x1fwhy\x1fhint\x1fkind".
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace vcc {

// The exit codes of the commands; engine/native.py turns each into its Python class.
enum class Code : int32_t {
  kOk = 0,
  kUsage = 2,
  kDevice = 3,
  kStorage = 5,
  kIntegrity = 7,
  kCompile = 8,
  kGraph = 9,
  kInternal = 70,
};

// Kinds of errors that callers tell apart within a code; engine/native.py has a class for each.
inline constexpr const char* kShortage = "shortage";  // of the device's memory

// What could not be done, why as exact as known, and the next step for the reader (may be empty).
class Error : public std::exception {
 public:
  Error(Code code, std::string what, std::string why = "", std::string hint = "")
      : code(code), task(std::move(what)), why(std::move(why)), hint(std::move(hint)) {}

  const char* what() const noexcept override { return task.c_str(); }

  Code code;
  std::string task;
  std::string why;
  std::string hint;
  const char* kind = "";  // a constant from above
};

// A rule of the library's own code is broken; `file` is relative to csrc.
[[noreturn]] void fail_expectation(const char* condition, const char* text, const char* file,
                                   int line);

// Keep `error` as the text of this thread; returns its code.
int32_t keep_error(const Error& error) noexcept;

// Keep whatever exception is being handled.
int32_t keep_current() noexcept;

// Run the body of a C function: no exception leaves it.
template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return 0;
  } catch (...) {
    return keep_current();
  }
}

// A text of this thread that stays valid until the next one: for results of C functions.
const char* keep_text(std::string text);

}  // namespace vcc

#define VCC_EXPECT(condition, text) \
  ((condition) ? (void)0 : ::vcc::fail_expectation(#condition, text, __FILE__, __LINE__))
