#include "vcc.h"

#include <sys/prctl.h>

#include <csignal>

#include "cpu_level.h"

uint32_t vcc_abi_version(void) { return 1; }

int vcc_cpu_level(void) { return vcc::cpu_level(); }

int vcc_die_with_parent(void) { return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); }
