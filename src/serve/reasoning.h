// The parts of an answer: what a model thinks first, between <think> and </think>, and what it then says.
#pragma once
#include <stdbool.h>

// Places in a text that grows: reasoning is [reasoning, reasoning_to), the answer [content, content_to). Both only
// grow; what may still turn out to be a tag, or blanks around one, is in neither.
typedef struct Reasoning {
  enum { REASONING_BEGINS, REASONING_THINKS, REASONING_ANSWERS } state;
  int reasoning, reasoning_to, content, content_to;
} Reasoning;

// thinks: the prompt has opened <think>.
void reasoning_begin(Reasoning *reasoning, bool thinks);
// text[0, bytes) is what there is; last: no more will come.
void reasoning_update(Reasoning *reasoning, const char *text, int bytes, bool last);
bool reasoning_is_open(const char *prompt, int bytes); // a prompt ends with <think> and blanks
