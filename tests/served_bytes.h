// A model to serve whose tokens are bytes, with a chat template of Hermes' form and with reasoning: id b is byte b, 256
// ends a text, 257 and 258 are <|im_start|> and <|im_end|>. And a server's threads without the server: a ticket is
// filled by hand.
#pragma once
#include "serve/reply.h"
#include <string.h>

enum { BYTES_VOCAB = 259, BYTES_END = 256, BYTES_CONTEXT = 2000 };

typedef struct ServedBytes {
  ServedModel model;
  ModelSource source;
  TextSetup text;
  Tokenizer *tokenizer;
  Chat *chat;
  TokenTrie *trie;
  uint8_t allowed[BYTES_VOCAB];
} ServedBytes;

static inline char *bytes_tokenizer(void) {
  json_t *vocab = json_object();
  for (int b = 0; b < 256; b++) {
    char letter[8] = {0};
    utf8_put(bpe_byte_letter((uint8_t)b), letter);
    json_object_set_new(vocab, letter, json_integer(b));
  }
  json_t *tokenizer = json_pack(
      "{s:s, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b}, s:[{s:i, s:s, s:b}, {s:i, s:s, s:b}, {s:i, s:s, "
      "s:b}], s:{s:s, s:o, s:[]}}",
      "version", "1.0", "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
      "use_regex", 1, "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
      "use_regex", 1, "added_tokens", "id", 256, "content", "<|endoftext|>", "special", 1, "id", 257, "content",
      "<|im_start|>", "special", 1, "id", 258, "content", "<|im_end|>", "special", 1, "model", "type", "BPE", "vocab",
      vocab, "merges");
  CHECK(tokenizer);
  char *text = json_dumps(tokenizer, 0);
  json_decref(tokenizer);
  return text;
}

#define BYTES_TEMPLATE                                                                                                 \
  "{% if tools %}<|im_start|>system\n{% for t in tools %}<tool>{{ t | tojson }}</tool>{% endfor %}<|im_end|>\n"       \
  "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"       \
  "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"                               \
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"

static inline void served_bytes_open(ServedBytes *s) {
  Error error = {0};
  memset(s, 0, sizeof *s);
  char *json = bytes_tokenizer();
  CHECK(!tokenizer_parse(json, strlen(json), "bytes", &s->tokenizer, &error), "%s", error.message);
  free(json);
  json_t *files = json_pack("{s:s}", "chat_template.jinja", BYTES_TEMPLATE);
  CHECK(!chat_open_files(&s->chat, files, "bytes", NULL, s->tokenizer, &error) && s->chat, "%s", error.message);
  json_decref(files);
  s->trie = token_trie_create(s->tokenizer);
  memset(s->allowed, 1, sizeof s->allowed);
  s->source.config.vocab = BYTES_VOCAB;
  s->text.bos = s->text.eos = BYTES_END;
  vec_push(&s->text.ends, BYTES_END);
  s->model = (ServedModel){.source = &s->source,
                           .tokenizer = s->tokenizer,
                           .text = &s->text,
                           .chat = s->chat,
                           .trie = s->trie,
                           .allowed = s->allowed,
                           .name = "bytes",
                           .context = BYTES_CONTEXT,
                           .usual = {.temperature = 1, .top_p = 1, .repetition = 1},
                           .fingerprint = "plait-0"};
}

static inline void served_bytes_close(ServedBytes *s) {
  chat_close(s->chat);
  token_trie_free(s->trie);
  tokenizer_destroy(s->tokenizer);
  vec_free(&s->text.ends);
}

// All choices draw the bytes of a text, `piece` at a time, and end. Streams: the events (caller frees); else the
// answer.
static inline json_t *served_bytes_answer(ServedBytes *s, Call *call, const char *text, int bytes, int piece,
                                          ByteVector *events) {
  TicketQueue queue;
  Reply reply;
  Refusal refusal;
  ticket_queue_create(&queue, 1000);
  reply_begin(&reply, call, &s->model, &queue);
  Ticket *t = call->ticket;
  for (int at = 0; at < bytes; at += piece) {
    for (int c = 0; c < t->count; c++)
      for (int i = at; i < at + piece && i < bytes; i++) {
        const int32_t top[] = {(unsigned char)text[i], 65, 200};
        const double logprobs[] = {-0.5, -1, -2};
        int count = t->choice[c].logprobs < 3 ? t->choice[c].logprobs : 3;
        ticket_push(t, c, &(EngineEvent){.id = top[0], .logprob = -0.5, .top = count > 0 ? count : 0, .top_ids = top,
                                         .top_logprobs = logprobs});
      }
    CHECK(!reply_update(&reply, &refusal));
    if (events) reply_events(&reply, events);
  }
  for (int c = 0; c < t->count; c++) ticket_push(t, c, &(EngineEvent){.id = -1, .end = REQUEST_STOPPED});
  CHECK(!reply_update(&reply, &refusal) && reply_is_whole(&reply));
  if (events) reply_events(&reply, events);
  json_t *answer = events ? NULL : reply_json(&reply, &refusal);
  reply_free(&reply);
  ticket_queue_destroy(&queue);
  return answer;
}
