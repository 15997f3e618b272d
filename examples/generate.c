// Continues several prompts at once with a model: a checkpoint, a run or a Hugging Face folder.
// Usage: generate MODEL TOKENIZER PROMPT…
#include "plait/files.h"
#include "plait/infer.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 64, TOKENS = 40 };

int main(int argc, char **argv) {
  if (argc < 4 || argc - 3 > MOST) return fprintf(stderr, "usage: generate MODEL TOKENIZER PROMPT…\n"), 2;
  PlaitError error = {0};
  PlaitTokenizer *tokenizer = NULL;
  PlaitEngine *engine = NULL;
  int32_t text[MOST][TOKENS];
  int count[MOST] = {0};
  int code = plait_tokenizer_open(argv[2], &tokenizer, &error);
  if (!code) code = plait_engine_open(argv[1], 0, NULL, &engine, &error);
  for (int i = 3; i < argc && !code; i++) {
    PlaitRequest request = {.max_tokens = TOKENS};
    int64_t number; // 0, 1, 2 …
    code =
        plait_tokenizer_encode(tokenizer, argv[i], strlen(argv[i]), 0, &request.prompt, &request.prompt_count, &error);
    if (!code) code = plait_engine_submit(engine, &request, &number, &error);
  }
  while (!code && !plait_engine_is_idle(engine)) {
    code = plait_engine_tick(engine, &error);
    for (PlaitToken t; !code && plait_engine_poll(engine, &t);)
      if (t.id >= 0) text[t.request][count[t.request]++] = t.id;
  }
  for (int i = 0; i < argc - 3 && !code; i++) {
    const char *decoded;
    size_t bytes;
    code = plait_tokenizer_decode(tokenizer, text[i], count[i], 0, &decoded, &bytes, &error);
    if (!code) printf("%s%s\n", argv[i + 3], decoded);
  }
  if (code) fprintf(stderr, "%s\n", error.message);
  plait_engine_close(engine);
  plait_tokenizer_close(tokenizer);
  return code != 0;
}
