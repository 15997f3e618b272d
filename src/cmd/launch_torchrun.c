// torchrun's words on the command line of plait launch.
#include "cmd/launch_torchrun.h"
#include "cli/options.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int torchrun_take_words(int argc, char **argv) {
  static char both[] = "--tee=3";
  int n = 1;
  for (int i = 1; i < argc; i++) {
    char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : "";
    for (char *c = word; !strncmp(word, "--", 2) && *c && *c != '='; c++)
      if (*c == '_') *c = '-';
    if (!strcmp(word, "--tee")) {
      bool takes = *next && strspn(next, "0123456789:,") == strlen(next); // a recipe has another name
      word = takes ? xformat("--tee=%s", next) : both;
      i += takes;
    }
    argv[n++] = word;
  }
  return n;
}

// The name here of each setting of torchrun's c10d and static rendezvous; NULL: it is taken.
static const struct { const char *key, *instead;
} settings[] = {
    {"timeout", NULL},
    {"read_timeout", "--silence SECONDS takes its place"},
    {"join_timeout",
     "machines wait for --nnodes MIN without limit, and --rdzv-timeout SECONDS says how long nobody may "
     "answer"},
    {"last_call_timeout", "the first round waits three seconds for more machines, and later nobody waits"},
    {"close_timeout", "all machines learn at once that the job has ended"},
    {"keep_alive_interval", "--silence SECONDS takes its place"},
    {"keep_alive_max_attempt", "--silence SECONDS takes its place"},
    {"is_host", "the first machine of --rdzv that is there serves the store"},
    {"store_type", "the supervisors have a store of their own"},
    {"use_libuv", "the supervisors have a store of their own"},
    {"rank", "--node-rank N takes its place"},
};

static int take_setting(const char *key, const char *value, double *patience, Error *error) {
  char *end;
  for (int i = 0; i < COUNT(settings); i++) {
    if (strcmp(settings[i].key, key)) continue;
    if (settings[i].instead)
      return error_set(error, PLAIT_BAD_INPUT, "--rdzv-conf: %s is torchrun's; here %s", key, settings[i].instead);
    double seconds = strtod(value, &end);
    if (!*value || *end || !isfinite(seconds) || seconds < 1)
      return error_set(error, PLAIT_BAD_INPUT, "--rdzv-conf: %s must be seconds, at least 1, not \"%.40s\"", key,
                       value);
    *patience = seconds;
    return PLAIT_OK;
  }
  return error_set(error, PLAIT_BAD_INPUT,
                   "--rdzv-conf: \"%.40s\" is not a setting of a rendezvous; timeout=SECONDS is", key);
}

int torchrun_take_conf(const char *text, double *patience, Error *error) {
  char *copy = text ? xstrdup(text) : NULL, *rest = copy;
  int code = PLAIT_OK;
  for (char *word; !code && rest && (word = strsep(&rest, ","));) {
    char *equals = strchr(word, '=');
    if (!*word) continue;
    if (!equals)
      code = error_set(error, PLAIT_BAD_INPUT, "--rdzv-conf: \"%.40s\" is not KEY=VALUE, as in timeout=60", word);
    else {
      *equals = 0;
      code = take_setting(word, equals + 1, patience, error);
    }
  }
  free(copy);
  return code;
}
