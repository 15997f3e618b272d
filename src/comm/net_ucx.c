// Loads UCX.
#ifdef PLAIT_UCX
#include "comm/net_ucx.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What UCX is told, unless the user tells it something else. It reads these when it is loaded.
static const struct { const char *name, *value; } settings[] = {
    {"UCX_HANDLE_ERRORS", "none"},      // plait catches SIGBUS of files that shrink, and sanitizers catch SIGSEGV
    {"UCX_MEM_EVENTS", "n"},            // no hooks in malloc and mmap, which sanitizers have, too
    {"UCX_POSIX_ERROR_HANDLING", "y"},  // or shared memory is not used where failures are to be reported
    {"UCX_SYSV_ERROR_HANDLING", "y"},
    {"UCX_CMA_MEMORY_INVALIDATE", "y"}, // or long messages do not go in one copy where failures are to be reported;
    {"UCX_RNDV_SCHEME", "get_zcopy"},   // safe as the receiver fetches them: no rank writes another's memory
    {"UCX_RNDV_THRESH", "256k"},        // measured: from here on one copy by the system beats two through a segment
    {"UCX_TCP_RX_SEG_SIZE", "512k"},    // of TCP a system call then takes more: a third less time for 1 MiB
    {"UCX_LOG_LEVEL", "fatal"},         // failures are plait's sentences
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},  // not every version knows all of these
};

static Ucx loaded;
static char problem[256];

static void load(void) {
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) setenv(settings[i].name, settings[i].value, 0);
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
  return error_set(error, PLAIT_FAILED, "run.comm: net needs UCX, which cannot be loaded (%s); install libucx0",
                   problem);
}
#endif
