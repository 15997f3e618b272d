// The tokenizer and the chat template of a model.
#include "cmd/model_text.h"
#include <stdlib.h>

int model_text_open(ModelText *t, ModelSource *source, bool chats, Error *error) {
  const char *path = t->tokenizer_path ? t->tokenizer_path : source->tokenizer;
  int64_t vocab = source->config.vocab;
  if (!path) return error_set(error, PLAIT_BAD_INPUT, "%s has no tokenizer.json; give --tokenizer FILE", source->path);
  int code = tokenizer_load(path, &t->tokenizer, error);
  if (code) return code;
  if (t->tokenizer_path) model_source_set_tokenizer(source, path);
  if ((code = text_setup(&t->setup, source, t->tokenizer, error))) return code;
  t->allowed = xcalloc((size_t)vocab, 1);
  for (int64_t i = 0; i < vocab && i < tokenizer_vocab_size(t->tokenizer); i++)
    t->allowed[i] = tokenizer_token(t->tokenizer, (int32_t)i) != NULL;
  if (!chats) return PLAIT_OK;
  return chat_open_files(&t->chat, source->files, source->path, t->template_path, t->tokenizer, error);
}

void model_text_close(ModelText *t) {
  chat_close(t->chat);
  text_setup_free(&t->setup);
  tokenizer_destroy(t->tokenizer);
  free(t->allowed);
}
