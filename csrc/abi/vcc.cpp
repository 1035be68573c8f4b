#include "vcc.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cpu_level.h"

uint32_t vcc_abi_version(void) { return 4; }

int vcc_cpu_level(void) { return vcc::cpu_level(); }

namespace {

// The kernel's signal reaches this process alone; SIGKILL would leave a compiler that it started.
void end_group(int) {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(128 + SIGKILL);
}

}  // namespace

int vcc_die_with_parent(void) {
  struct sigaction action = {};
  action.sa_handler = end_group;
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGUSR2);
  if (sigaction(SIGUSR2, &action, nullptr) != 0) return -1;
  if (sigprocmask(SIG_UNBLOCK, &ours, nullptr) != 0) return -1;
  return prctl(PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0);
}
