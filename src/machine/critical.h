// The critical path of a simulated step: from its end back to whoever was waited for last, and so on. A first run notes
// who waited for whom, a second one adds up what instructions took while their pipeline rank was on the path.
#pragma once
#include "machine/simulate.h"

typedef struct Critical Critical;
Critical *critical_create(int coordinates);
void critical_free(Critical *critical); // NULL is fine

// A coordinate continued at `resumed` because of what another one did up to `time`; between the two lies the collective
// `node`, or a message (NULL), over `axes`.
void critical_waited(Critical *critical, int coordinate, double resumed, int from, double time, const Node *node,
                     uint32_t axes);
// Notes what a coordinate's device did from `from` to `to`; node NULL: it waited for a message, or at the end.
void critical_spent(Critical *critical, int coordinate, double from, double to, TimePart part, const Node *node,
                    uint32_t axes);
// Between the first run and the second, which is given the same calls: finds the path of a step of `step` seconds.
void critical_trace(Critical *critical, double step);
// After the second: the `most` longest, in out->critical.
void critical_items(const Critical *critical, int most, Simulation *out);

// The name of an instruction of all layers: "layer.*.ffn.up" of "layer.7.ffn.up".
void critical_name(const char *name, char *out, size_t size);
