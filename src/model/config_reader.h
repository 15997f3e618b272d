// Typed getters for the keys of one JSON object of a config.json. After the first error they do nothing and return 0.
#pragma once
#include "model/config.h"

// Bounds that keep every product of sizes below 2^62 and are far above any model that exists.
enum {
  MOST_HEADS = 1 << 14,
  MOST_HEAD_DIM = 1 << 14,
  MOST_EMBED = 1 << 18,
  MOST_FFN = 1 << 22,
  MOST_VOCAB = 1 << 24,
  MOST_POSITIONS = 1 << 24
};

// Two names of one key, of which a file may have either: `other` is read where `key` is absent. Both may be there where
// they say the same.
typedef struct ConfigAlias { const char *other, *key; } ConfigAlias;

typedef struct ConfigReader {
  const char *file, *prefix; // prefix: "" or "rope_scaling.", for messages
  const ConfigAlias *aliases; // up to one without names; NULL: none
  json_t *object, *known; // known: keys that were asked for, with the prefix, are added to it
  Error *error;
  int code;
} ConfigReader;

// The value of a key, NULL where it is absent or null.
const json_t *config_value(ConfigReader *r, const char *key);
// Is the key there, with null as its value?
int config_is_null(const ConfigReader *r, const char *key);

// `absent`: what the key is where it is absent or null; below 0: it must be there.
int64_t config_integer(ConfigReader *r, const char *key, int64_t lowest, int64_t highest, int64_t absent);
// Is the value an integer? 32.0 is one, too.
int config_whole(const json_t *value, int64_t *integer);
// Above `lowest`, or equal to it where `closed`; below `highest`. `absent` NAN: it must be there.
double config_real(ConfigReader *r, const char *key, double lowest, int closed, double highest, double absent);
double config_probability(ConfigReader *r, const char *key, double absent); // from 0 and below 1
int config_boolean(ConfigReader *r, const char *key, int absent);
ActivationKind config_activation(ConfigReader *r, const char *key, const char *absent);

// Do two values say the same? Numbers are compared as numbers: 1 is 1.0.
int config_same(const json_t *a, const json_t *b);

// A key that changes the numbers as plait cannot: only `neutral` (a JSON text) or absence is let through.
void config_only(ConfigReader *r, const char *key, const char *neutral);
void config_must_divide(ConfigReader *r, const char *key, int64_t value, const char *by_key, int64_t by);

// The name that the file has for a key: the other one where only that is there.
const char *config_name(const ConfigReader *r, const char *key);

// "FILE: KEY is VALUE; allowed: ALLOWED", and "FILE: the key KEY is missing; allowed: ALLOWED".
void config_bad_value(ConfigReader *r, const char *key, const json_t *value, const char *allowed);
void config_missing(ConfigReader *r, const char *key, const char *allowed);
