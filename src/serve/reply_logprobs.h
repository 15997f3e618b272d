// Log-probabilities in the two forms that OpenAI's clients know.
#pragma once
#include "serve/output.h"
#include <jansson.h>

// Of the tokens [from, to) of an output that tells them. completions: {"tokens", "token_logprobs", "top_logprobs",
// "text_offset"}; chat: {"content": […]}.
json_t *logprobs_of_completion(const Output *output, int from, int to);
json_t *logprobs_of_chat(const Output *output, int from, int to);
// Bytes as a JSON text: what is not UTF-8 is U+FFFD.
json_t *json_of_bytes(const char *text, int bytes);
json_t *json_of_text(const ByteVector *text, int from, int to); // also where it has no bytes
