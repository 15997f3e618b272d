// The tokens that an answer may have: those of a JSON schema (response_format), and of calls of tools.
#pragma once
#include "serve/call.h"

// Reads response_format, and of tools tool_choice and parallel_tool_calls. Where the answer is held to a grammar, each
// choice of the call's ticket gets rules, which the ticket frees. After the prompt is known.
int call_rules_read(Call *call, const ServedModel *model, Refusal *refusal);
