// plait plan of a model that generates: memory, requests that fit and speed, before anything is allocated.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdio.h>

// The path of a checkpoint, a run or a Hugging Face folder, and keys as plait generate and plait serve take them.
// exact: bytes and not kB, MB and GB. json: one JSON object. PLAIT_BAD_INPUT as generation refuses it; nothing is
// printed then.
int plan_generation(const char *path, int key_count, char **keys, bool exact, bool json, FILE *out, Error *error);
