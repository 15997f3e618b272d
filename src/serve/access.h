// Who may ask: keys, and pages in browsers.
#pragma once
#include "serve/refusal.h"
#include "serve/http.h"
#include "base/vec.h"

typedef struct Access {
  Vec(char *) keys;         // none: everybody
  const char *allow_origin; // NULL: only the server's own page
  bool local;               // it listens at an address of this machine only
} Access;

int access_open(Access *access, const char *host, const char *key_file, const char *allow_origin, Error *error);
void access_close(Access *access);
// -1 with a failure: 401 without a right key, which takes the same time for all wrong ones; 403 for another site's
// page.
int access_check(const Access *access, const HttpExchange *exchange, bool needs_key, Refusal *refusal);
bool access_is_local(const char *host); // an address that only this machine reaches
