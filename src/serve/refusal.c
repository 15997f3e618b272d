// Errors as OpenAI's JSON.
#include "serve/refusal.h"
#include "tokenizer/bpe.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

int refusal_set(Refusal *f, int status, const char *code, const char *param, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  *f = (Refusal){.status = status, .code = code};
  vsnprintf(f->message, sizeof f->message, format, arguments);
  snprintf(f->param, sizeof f->param, "%s", param ? param : "");
  va_end(arguments);
  return -1;
}

static json_t *text_or_null(const char *text) {
  ByteVector valid = {0}; // a sentence that was cut off may end within a character
  if (!text || !*text) return json_null();
  utf8_append(&valid, text, strlen(text));
  json_t *string = json_stringn(valid.data, (size_t)valid.count);
  vec_free(&valid);
  return string;
}

char *refusal_print(const Refusal *f) {
  const char *type = f->status >= 500   ? "server_error"
                     : f->status == 429 ? "rate_limit_error"
                                        : "invalid_request_error";
  json_t *error = json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", text_or_null(f->message), "type", type,
                            "param", text_or_null(f->param), "code", text_or_null(f->code));
  char *text = json_dumps(error, JSON_COMPACT);
  json_decref(error);
  CHECK(text);
  return text;
}
