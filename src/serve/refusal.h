// Why a request has no answer, as OpenAI's clients read it.
#pragma once
#include "base/error.h"

typedef struct Refusal {
  int status;       // of HTTP; 0: none
  const char *code; // "context_length_exceeded"; NULL: none
  char param[64];   // the field; "": none
  char message[600];
} Refusal;

// Returns -1, for `return refusal_set(…)`. param: NULL or the field.
int refusal_set(Refusal *refusal, int status, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
// {"error": {"message", "type", "param", "code"}} on one line; the caller frees it.
char *refusal_print(const Refusal *refusal);
