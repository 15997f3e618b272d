// Masks of the tokens that may be drawn next (RequestRules), computed by a thread while the model's forward pass runs.
// They follow from the tokens that a request has, which are known before it; drawing waits for them, or computes those
// that the thread has not started.
#pragma once
#include "infer/scheduler.h"

typedef struct Masks Masks;

Masks *masks_create(void); // its thread is started for the first mask
void masks_destroy(Masks *masks); // NULL is fine

// The mask for the next token is wanted soon: the thread computes it in its turn. Nothing else may call the rules until
// masks_take or masks_drop.
void masks_begin(Masks *masks, const RequestRules *rules);
// That mask, as rules->allowed gives it, for as long as that says. Any thread, which may call the rules itself; one at
// a time for the same rules.
const uint8_t *masks_take(Masks *masks, const RequestRules *rules);
// It is not wanted any more; when this returns, nobody calls the rules. NULL: those of all.
void masks_drop(Masks *masks, const RequestRules *rules);
