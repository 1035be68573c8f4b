// Counting, logging and failing of calls, and the functions by which a test controls the double.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fake.h"

namespace fake {

int fault = 0;
int pending_fault = 0;
extern bool initialised;
extern thread_local CUcontext current;

namespace {

struct Planned {
  std::string name;
  long nth;
  int code;
};

struct Control {
  std::map<std::string, long> counts;
  std::vector<Planned> planned;
  std::string log, launches, text;
  bool logging = false;
  pid_t process = 0;
};

Control& control() {
  static auto* made = new Control();
  return *made;
}

// "cuMemCreate:3:2,cuMemMap:1:1": the third cuMemCreate answers 2, the first cuMemMap 1.
void plan_from_environment() {
  std::istringstream all(setting("VCC_FAKE_FAIL", ""));
  for (std::string one; std::getline(all, one, ',');) {
    std::istringstream fields(one);
    std::string name, nth, code;
    std::getline(fields, name, ':');
    std::getline(fields, nth, ':');
    std::getline(fields, code, ':');
    control().planned.push_back({name, std::atol(nth.c_str()), std::atoi(code.c_str())});
  }
}

std::string held;  // under lock()
std::atomic<bool> holds{false}, waits{false};

struct AtLoad {
  AtLoad() {
    plan_from_environment();
    pending_fault = static_cast<int>(number("VCC_FAKE_FAULT", 0));
    control().logging = number("VCC_FAKE_LOG", 0) != 0;
  }
} at_load;

int planned_failure(const std::string& name) {
  for (auto at = control().planned.begin(); at != control().planned.end(); ++at) {
    if ((at->name == name || at->name == "*") && --at->nth == 0) {
      const int code = at->code;
      control().planned.erase(at);
      return code;
    }
  }
  return 0;
}

CUresult refusal(const char* name, Needs needs) {
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (std::strcmp(name, "cuInit") == 0) control().process = getpid();
  if (control().process != 0 && control().process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (std::strcmp(name, "cuInit") != 0 && !initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (fault != 0) return static_cast<CUresult>(fault);
  if (needs == Needs::kContext && !known_context(current)) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

}  // namespace

std::recursive_mutex& lock() {
  static auto* made = new std::recursive_mutex();
  return *made;
}

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

long long number(const char* name, long long otherwise) {
  const std::string text = setting(name, "");
  return text.empty() ? otherwise : std::atoll(text.c_str());
}

void log_line(const std::string& text) {
  if (control().logging) control().log += text + "\n";
}

void log_launch(const std::string& text) { control().launches += text + "\n"; }

CUresult enter(const char* name, Needs needs) {
  ++control().counts[name];
  while (holds && held == name) {
    waits = true;
    usleep(100);
  }
  int code = planned_failure(name);
  if (code == 0) code = refusal(name, needs);
  log_line(std::string(name) + (code == 0 ? "" : " -> " + std::to_string(code)));
  return static_cast<CUresult>(code);
}

}  // namespace fake

using fake::control;

// The nth next call of `name` ("*": of any) answers `code`; 0 forgets what was planned for the
// name.
FAKE_API void fake_fail(const char* name, long nth, int code) {
  const std::lock_guard guard(fake::lock());
  auto& planned = control().planned;
  if (nth == 0) {
    std::erase_if(planned, [&](const fake::Planned& p) { return p.name == name; });
  } else {
    planned.push_back({name, nth, code});
  }
}

// Calls of `name` do not return until `fake_release`; others wait behind the first of them.
FAKE_API void fake_hold(const char* name) {
  const std::lock_guard guard(fake::lock());
  fake::held = name;
  fake::waits = false;
  fake::holds = true;
}

// Whether a call of that name has come.
FAKE_API int fake_waits() { return fake::waits ? 1 : 0; }

FAKE_API void fake_release() { fake::holds = false; }

// The next kernel that runs faults with this code (700: illegal address).
FAKE_API void fake_fault(int code) {
  const std::lock_guard guard(fake::lock());
  fake::pending_fault = code;
}

// Forget counts, logs, plans and faults; memory, modules and graphs stay.
FAKE_API void fake_clear() {
  const std::lock_guard guard(fake::lock());
  const pid_t process = control().process;
  const bool logging = control().logging;
  control() = {};
  control().process = process;
  control().logging = logging;
  fake::fault = fake::pending_fault = 0;
}

// As a new process would find it.
FAKE_API void fake_reset() {
  const std::lock_guard guard(fake::lock());
  fake_clear();
  control().process = 0;
  fake::initialised = false;
  fake::reset_streams();
  fake::reset_graphs();
  fake::reset_modules();
  fake::reset_memory();
}

FAKE_API long fake_count(const char* name) {
  const std::lock_guard guard(fake::lock());
  if (std::strcmp(name, "*") != 0) return control().counts[name];
  long sum = 0;
  for (const auto& [_, count] : control().counts) sum += count;
  return sum;
}

// One line a call, "name" or "name -> code", while logging is on (fake_log_calls, VCC_FAKE_LOG=1).
FAKE_API void fake_log_calls(int on) { control().logging = on != 0; }

FAKE_API const char* fake_log() {
  const std::lock_guard guard(fake::lock());
  control().text = control().log;
  return control().text.c_str();
}

// One line for each kernel that would have run: "name grid=x,y,z block=x,y,z shared=n words=hex".
FAKE_API const char* fake_launches() {
  const std::lock_guard guard(fake::lock());
  control().text = control().launches;
  return control().text.c_str();
}
