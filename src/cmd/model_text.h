// Shared by the commands for a model's text (generate, chat, serve; eval in part): the options that choose tokenizer,
// chat template and sampling, and what these open.
#pragma once
#include "chat/chat.h"
#include "cli/options.h"
#include "infer/sample.h"
#include "infer/text_setup.h"
#include "tokenizer/tokenizer.h"

typedef struct ModelText {
  const char *tokenizer_path, *template_path; // of the options; NULL: the model's own
  Tokenizer *tokenizer;
  TextSetup setup;
  Chat *chat;       // NULL: it has no template, or none is wanted
  uint8_t *allowed; // (vocab) ids that stand for something
} ModelText;

// Opens the tokenizer of a source and, if `chats`, its template, where it has one. PLAIT_BAD_INPUT: no tokenizer. The
// caller closes, also after an error.
int model_text_open(ModelText *text, ModelSource *source, bool chats, Error *error);
void model_text_close(ModelText *text);

// Rows of a table of options. `place`: a pointer to what the option sets; use, usual: texts.
#define OPTION_TOKENIZER(place, use) \
  { .name = "tokenizer", .kind = OPTION_TEXT, .value = (place), .argument = "FILE", \
    .help = "the tokenizer.json " use "; without it, the model's own" }
#define OPTION_TEMPLATE(place, before) \
  { .name = "template", .kind = OPTION_TEXT, .value = (place), .argument = "FILE", \
    .help = before "the chat template (Jinja) to use, or the name of one of the model's; without it, the model's own" }
#define OPTION_THREADS(place) \
  { .name = "threads", .kind = OPTION_INTEGER, .value = (place), .argument = "N", \
    .help = "threads of all ranks on this machine together", .shown = "all cores", .least = 1, .most = 4096 }
#define OPTION_SEED(place, meaning) \
  { .name = "seed", .kind = OPTION_INTEGER, .value = (place), .argument = "N", .help = meaning, .least = 0, \
    .most = 9007199254740992.0 }
// Of a SampleOptions *. usual: what --help says of the defaults; NULL: the numbers themselves.
#define OPTIONS_SAMPLE(s, usual) \
  { .name = "temperature", .kind = OPTION_REAL, .value = &(s)->temperature, .argument = "T", \
    .help = "how random the choice of tokens is; 0: always the most likely token", .shown = (usual), .least = 0, \
    .most = 100 }, \
  { .name = "top-k", .kind = OPTION_INTEGER, .value = &(s)->top_k, .argument = "K", \
    .help = "choose among the K most likely tokens; 0: among all", .shown = (usual), .least = 0, \
    .most = 2147483647.0 }, \
  { .name = "top-p", .kind = OPTION_REAL, .value = &(s)->top_p, .argument = "P", \
    .help = "choose among the fewest tokens whose probabilities add up to P", .shown = (usual), .least = 1e-9, \
    .most = 1 }, \
  { .name = "min-p", .kind = OPTION_REAL, .value = &(s)->min_p, .argument = "P", \
    .help = "choose among tokens with at least P times the probability of the most likely one", .shown = (usual), \
    .least = 0, .most = 1 }, \
  { .name = "repetition-penalty", .kind = OPTION_REAL, .value = &(s)->repetition, .argument = "R", \
    .help = "divides positive logits of tokens that the text has already by R, and multiplies negative ones", \
    .shown = (usual), .least = 0.01, .most = 100 }
