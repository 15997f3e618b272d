// Loads UCX.
#ifdef PLAIT_UCX
#include "comm/net_ucx.h"
#include "base/fault.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

// What UCX is told, unless the user tells it something else. It reads these when it is loaded.
typedef struct Setting { const char *name, *value; } Setting;
static const Setting settings[] = {
    {"UCX_HANDLE_ERRORS", "none"},      // plait catches SIGBUS of files that shrink, and sanitizers catch SIGSEGV
    {"UCX_MEM_EVENTS", "n"},            // no hooks in malloc and mmap, which sanitizers have, too
    {"UCX_RNDV_SCHEME", "auto"},        // on a machine receivers fetch; by TCP senders put it where it belongs
    {"UCX_RNDV_THRESH", "256k"},        // measured: from here on one copy by the system beats two through a segment
    {"UCX_TCP_RX_SEG_SIZE", "64k"},     // a buffer: shorter messages, and the beginnings of longer, are copied from it
    {"UCX_LOG_LEVEL", "fatal"},         // failures are plait's sentences
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},  // not every version knows all of these
};

// And with an adapter that moves memory by itself: a sender that has failed must not write into a receiver's memory.
static const Setting adapter_settings[] = {
    {"UCX_POSIX_ERROR_HANDLING", "y"},  // or shared memory is not used where failures are to be reported
    {"UCX_SYSV_ERROR_HANDLING", "y"},
    {"UCX_CMA_MEMORY_INVALIDATE", "y"}, // or long messages do not go in one copy where failures are to be reported
    {"UCX_RNDV_SCHEME", "get_zcopy"},   // receivers fetch
};

static Ucx loaded;
static char problem[256];

// May processes of this user read each other's memory? A sandbox can forbid the call itself, and Yama, from level 2 on,
// all but administrators. Not seen are containers with process numbers of their own: between those UCX uses TCP.
static int processes_read_each_other(void) {
  char here = 1, there = 0;
  struct iovec from = {&here, 1}, to = {&there, 1};
  int level = 0;
  FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
  if (file && fscanf(file, "%d", &level) != 1) level = 0;
  if (file) fclose(file);
  return level < 2 && process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 && there;
}

int ucx_uses_adapters(void) {
  const char *devices = getenv("UCX_NET_DEVICES");
  return devices && (strchr(devices, ':') || strstr(devices, "all"));
}

static void load(void) {
  for (size_t i = 0; i < sizeof adapter_settings / sizeof *adapter_settings && ucx_uses_adapters(); i++)
    setenv(adapter_settings[i].name, adapter_settings[i].value, 0);
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) setenv(settings[i].name, settings[i].value, 0);
  // Else UCX would put long messages by TCP on this machine, too: three times slower than through shared memory.
  if (FAULT(net_long_by_tcp, !processes_read_each_other(), 0)) setenv("UCX_TCP_PUT_ENABLE", "n", 0);
  void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    return;
  }
  static const struct { const char *name; size_t place; } functions[] = {
#define UCX(name) {#name, offsetof(Ucx, name)},
#include "comm/net_ucx.def"
#undef UCX
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !*problem; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function) snprintf(problem, sizeof problem, "%s", dlerror());
    memcpy((char *)&loaded + functions[i].place, &function, sizeof function);
  }
}

int ucx_load(const Ucx **ucx, Error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *ucx = &loaded;
  if (!*problem) return PLAIT_OK;
  return error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.key = "run.wire"},
                         "run.wire: ucx needs UCX, which cannot be loaded (%s); install libucx0", problem);
}
#endif
