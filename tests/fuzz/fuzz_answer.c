// Answers of models: what is told of a text does not depend on how it is cut into pieces, and nothing but marks is
// lost.
#include "chat/chat_parser.h"
#include "fuzz.h"
#include <string.h>

typedef struct Told {
  ByteVector bytes; // kinds and texts; deltas of one kind in a row are one
  int kind, calls;
} Told;

static void tell(void *context, const ChatDelta *d) {
  Told *t = context;
  char kind = (char)d->kind;
  CHECK(d->bytes && d->kind <= CHAT_ARGUMENTS);
  if (d->kind == CHAT_CALL) t->calls++;
  if (d->kind >= CHAT_CALL) CHECK(d->call == t->calls - 1);
  if (t->kind != (int)d->kind || d->kind == CHAT_CALL) bytes_append(&t->bytes, &kind, 1);
  t->kind = (int)d->kind;
  bytes_append(&t->bytes, d->text, d->bytes);
}

static void parse(Told *t, ChatParserOptions o, const uint8_t *data, size_t size, unsigned step) {
  *t = (Told){.kind = -1};
  o.tell = tell;
  o.context = t;
  ChatParser *p = chat_parser_create(&o);
  for (size_t at = 0, n, k = step; at < size; at += n, k = k * 5 + 3) {
    n = step ? 1 + k % step : size;
    if (n > size - at) n = size - at;
    char *piece = malloc(n); // so that AddressSanitizer sees who reads beyond it
    CHECK(piece);
    memcpy(piece, data + at, n);
    chat_parser_push(p, piece, n);
    free(piece);
  }
  chat_parser_end(p);
  CHECK(chat_parser_calls(p) == t->calls);
  chat_parser_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned kind = fuzz_byte(&data, &size);
  ChatParserOptions o = {.form = kind % 6, .reasoning = kind & 64, .in_reasoning = kind & 128};
  Told whole, cut;
  parse(&whole, o, data, size, 0);
  for (unsigned step = 1; step < 12; step += 5) {
    parse(&cut, o, data, size, step);
    CHECK(cut.bytes.count == whole.bytes.count &&
              (!cut.bytes.count || !memcmp(cut.bytes.data, whole.bytes.data, (size_t)cut.bytes.count)),
          "step %u", step);
    vec_free(&cut.bytes);
  }
  vec_free(&whole.bytes);
  return 0;
}
