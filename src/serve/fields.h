// The keys of a request (fields.def), and their values.
#pragma once
#include "serve/refusal.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum FieldEndpoint { FIELD_TEXT = 1, FIELD_CHAT = 2, FIELD_BOTH = 3 } FieldEndpoint;

// Refuses keys that are not known, or not built and not at their usual value. Removes those at null from the object,
// and adds the number of ignored ones to *ignored.
int fields_check(json_t *request, FieldEndpoint endpoint, int64_t *ignored, Refusal *refusal);

// Values of an object; one that is absent leaves *value as it is. Outside of least … most, or of another kind, they
// fail.
int field_integer(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *value, Refusal *refusal);
int field_number(const json_t *object, const char *key, double least, double most, double *value, Refusal *refusal);
int field_flag(const json_t *object, const char *key, bool *value, Refusal *refusal);
