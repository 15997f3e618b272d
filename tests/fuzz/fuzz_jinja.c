// Chat templates: whatever a template is, it ends with a text or a sentence; the parts of the text cover it, it is
// UTF-8, and bytes of messages are never taken for the template's.
#include "chat/jinja.h"
#include "fuzz.h"
#include <jansson.h>
#include <string.h>

// Characters that no template has by chance.
static const char chat[] =
    "[{\"role\": \"user\", \"content\": \"\xee\x84\xa3 a \xee\x84\xa4\"}, {\"role\": \"assistant\", "
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
    "{\"\xee\x84\xa5\": [1, 2.5, true, \"\xee\x84\xa6\"]}}}]}, {\"role\": \"tool\", \"content\": \"3\"}]";

static void check_output(const JinjaOutput *o, bool own) {
  size_t at = 0, bytes = (size_t)o->text.count;
  CHECK(!bytes || utf8_prefix(o->text.data, bytes) == bytes, "no UTF-8");
  for (int i = 0; i < o->parts.count; i++) {
    const JinjaPart *part = &o->parts.data[i];
    CHECK(part->end > at && part->end <= bytes && part->origin >= JINJA_GIVEN && part->origin < 3);
    if (part->origin == JINJA_TEMPLATE && !own)
      CHECK(!memchr(o->text.data + at, 0xEE, part->end - at), "a message's byte");
    at = part->end;
  }
  CHECK(at == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const JinjaLimits limits = {.steps = 100000, .memory = 16 << 20, .output = 1 << 20};
  const char *text = (const char *)data;
  bool own = memchr(text, '\\', size) || memmem(text, size, "\xee", 1) || memmem(text, size, "strftime", 8);
  JinjaTemplate *t;
  Error error = {0};
  int code = jinja_parse(text, size, "t", &t, &error);
  fuzz_check(code, &error);
  CHECK(!code == (t != NULL));
  if (!t) return 0;
  json_t *messages = json_loads(chat, 0, NULL), *yes = json_true();
  JinjaVariable variables[] = {{"messages", messages, JINJA_TEMPLATE, true, NULL},
                               {"tools", messages, JINJA_GIVEN, false, NULL},
                               {"add_generation_prompt", yes, JINJA_TEMPLATE, false, NULL}};
  JinjaOutput output = {0};
  code = jinja_run(t, variables, 3, &limits, &output, &error);
  CHECK(code == PLAIT_OK || code == PLAIT_BAD_INPUT);
  CHECK((code == PLAIT_OK) == !error.message[0] || memmem(text, size, "raise", 5), "%s", error.message);
  check_output(&output, own);
  jinja_output_free(&output);
  json_decref(messages);
  jinja_free(t);
  return 0;
}
