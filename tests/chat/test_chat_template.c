// tier 1; rooms chat tokenizer
// Messages to ids: special tokens never come from contents, answers are continued where they end, templates get
// contents and calls in the form that they take, malformed messages are named, and the forms of calls are told by the
// template.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "chat/chat.h"
#include "draw.h"
#include <stdio.h>
#include <string.h>

#define TEMPLATES TESTS_FOLDER "/chat/templates/"
#define GOLDEN TESTS_FOLDER "/tokenizer/golden/"

static Tokenizer *load(const char *kind) {
  char path[1024];
  Error error = {0};
  Tokenizer *t;
  snprintf(path, sizeof path, GOLDEN "%s.json", kind);
  if (tokenizer_load(path, &t, &error)) fail_msg("%s", error.message);
  return t;
}

// qwen2.json with special tokens that are looked for in normalized text, or with <|user|> for <|im_start|>.
static Tokenizer *load_changed(bool normalized, bool user) {
  char *text;
  size_t bytes;
  Error error = {0};
  Tokenizer *t;
  assert_int_equal(file_read(GOLDEN "qwen2.json", 1 << 24, &text, &bytes, &error), 0);
  json_t *tree = json_loadb(text, bytes, 0, NULL), *token;
  size_t i;
  json_array_foreach(json_object_get(tree, "added_tokens"), i, token) {
    if (normalized) json_object_set_new(token, "normalized", json_true());
    if (user && !strcmp(json_string_value(json_object_get(token, "content")), "<|im_start|>"))
      json_object_set_new(token, "content", json_string("<|user|>"));
  }
  char *changed = json_dumps(tree, 0);
  if (tokenizer_parse(changed, strlen(changed), "t", &t, &error)) fail_msg("%s", error.message);
  json_decref(tree);
  free(changed);
  free(text);
  return t;
}

static Chat *open_template(const char *source, const Tokenizer *t) {
  json_t *files = json_pack("{s:s, s:s}", "chat_template.jinja", source, "tokenizer_config.json",
                            "{\"bos_token\": \"<|endoftext|>\", \"eos_token\": {\"content\": \"<|im_end|>\"}}");
  Chat *chat;
  Error error = {0};
  if (chat_open_files(&chat, files, "m", NULL, t, &error)) fail_msg("%s", error.message);
  json_decref(files);
  return chat;
}

static Chat *open_file(const char *name, const Tokenizer *t) {
  char path[1024];
  Chat *chat;
  Error error = {0};
  snprintf(path, sizeof path, TEMPLATES "%s", name);
  json_t *none = json_object();
  if (chat_open_files(&chat, none, "m", path, t, &error)) fail_msg("%s", error.message);
  json_decref(none);
  return chat;
}

static const char *const bits[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "start|>", "end|>", "<", "|",
                                   ">", "<|", "user", "\n", " ", "a", "e\xcc\x81", "\xe4\xb8\x96", "<|im_end|"};

static char *draw_text(uint64_t *state) {
  char *text = xcalloc(200, 1);
  for (size_t n = draw_below(state, 9); n > 0; n--) strcat(text, bits[draw_below(state, sizeof bits / sizeof *bits)]);
  return text;
}

static int specials_in(const Tokenizer *t, const IdVector *ids) {
  int n = 0;
  for (int i = 0; i < ids->count; i++) n += t->token_special[ids->data[i]];
  return n;
}

// exact: the tokenizer gives back the bytes of the text, because nothing is normalized.
static void check_contents(const Tokenizer *t, const char *template, int each, int more) {
  Chat *chat = open_template(template, t);
  uint64_t state = DRAW_SEED;
  for (int round = 0; round < 2000; round++) {
    json_t *messages = json_array();
    int count = 1 + (int)draw_below(&state, 3);
    for (int i = 0; i < count; i++) {
      char *text = draw_text(&state);
      json_array_append_new(
          messages, json_pack("{s:s, s:s, s:s}", "role", i % 2 ? "assistant" : "user", "content", text, "name", text));
      free(text);
    }
    IdVector ids = {0};
    Error error = {0};
    ChatPrompt prompt = {.messages = messages, .answer = true};
    if (chat_encode(chat, &prompt, &ids, &error)) fail_msg("%s", error.message);
    if (specials_in(t, &ids) != each * count + more) {
      ByteVector text = {0};
      tokenizer_decode(t, ids.data, ids.count, 0, &text, &error);
      fail_msg("%d special tokens in %.*s", specials_in(t, &ids), text.count, text.data);
    }
    vec_free(&ids);
    json_decref(messages);
  }
  chat_close(chat);
}

static void test_contents(void **state) {
  (void)state;
  static const char chatml[] =
      "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  // Tokens that are put together of the template's parts and of roles; contents through filters.
  static const char joined[] = "{% for m in messages %}{{ '<|im_' ~ 'start|>' }}{{ (m.content ~ m.name) | upper | "
                               "lower | replace('a', '<|im_end|>'[:0]) "
                               "}}{{ '<|' + 'im_end' + '|>' }}{{ [m.content] | tojson }}{% endfor %}";
  Tokenizer *t = load("qwen2"), *normalized = load_changed(true, false);
  check_contents(t, chatml, 2, 2);
  check_contents(t, joined, 2, 0);
  check_contents(normalized, chatml, 2, 2);
  tokenizer_destroy(normalized);
  tokenizer_destroy(t);
}

static void test_roles_make_tokens(void **state) {
  (void)state;
  Tokenizer *t = load_changed(false, true);
  Chat *chat =
      open_template("{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{{ m.content }}{% endfor %}{{ 'im_end' }}", t);
  for (int i = 0; i < 2; i++) {
    json_t *messages = json_pack("[{s:s, s:s}]", "role", i ? "im_end" : "user", "content", "x");
    IdVector ids = {0};
    Error error = {0};
    ChatPrompt prompt = {.messages = messages};
    assert_int_equal(chat_encode(chat, &prompt, &ids, &error), 0);
    assert_int_equal(specials_in(t, &ids), !i); // a role that only the template knows is not the template's
    vec_free(&ids);
    json_decref(messages);
  }
  chat_close(chat);
  tokenizer_destroy(t);
}

static char *rendered(const Chat *chat, const char *messages, const char *tools, bool answer, bool prefill) {
  json_error_t why;
  json_t *list = json_loads(messages, JSON_DECODE_ANY, &why), *tool_list = tools ? json_loads(tools, 0, NULL) : NULL;
  if (!list) fail_msg("%s: %s", messages, why.text);
  ChatPrompt prompt = {.messages = list, .tools = tool_list, .answer = answer, .prefill = prefill};
  ByteVector text = {0};
  TextSpanVector spans = {0};
  Error error = {0};
  char *out = chat_render(chat, &prompt, &text, &spans, &error)
                  ? xformat("!%s", error.message)
                  : xformat("%.*s", text.count, text.data ? text.data : "");
  vec_free(&text);
  vec_free(&spans);
  json_decref(list);
  json_decref(tool_list);
  return out;
}

static void expect(const Chat *chat, const char *messages, bool prefill, const char *wanted) {
  char *text = rendered(chat, messages, NULL, true, prefill);
  assert_string_equal(text, wanted);
  free(text);
}

static void test_forms(void **state) {
  (void)state;
  static const char hi[] =
      "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yes, \"}]";
  static const char parts[] = "[{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                              "{\"type\": \"text\", \"text\": \"b\"}]}]";
  static const char call[] = "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": null, "
                             "\"tool_calls\": [{\"id\": \"abcdefghi\", "
                             "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1]}\"}}]}]";
  Tokenizer *t = load("qwen2");
  Chat *chat = open_template("{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if "
                             "add_generation_prompt %}[assistant:{% endif %}",
                             t);
  expect(chat, hi, true, "[user:Hi][assistant:Yes, "); // continued: nothing after it, also no new turn
  expect(chat, parts, false, "[system:a\nb][assistant:");
  chat_close(chat);
  chat = open_template("{% for m in messages %}{{ m.role }}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor "
                       "%}{# developer #}",
                       t);
  expect(chat, parts, false, "developer<a\nb>"); // contents must be lists
  chat_close(chat);
  chat = open_template("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments "
                       "| tojson }}{% endfor %}{% endfor %}",
                       t);
  expect(chat, call, false, "uNone{\"a\": [1]}");
  chat_close(chat);
  chat = open_template("{% for m in messages %}{{ m.content + '' }}{% for c in m.tool_calls or [] %}{{ "
                       "c.function.arguments + '.' }}{% endfor %}{% endfor %}",
                       t);
  expect(chat, call, false, "u{\"a\": [1]}."); // arguments must be texts, and contents too
  chat_close(chat);
  chat = open_template("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", t);
  expect(chat, call, false, "u.."); // it shows no calls
  chat_close(chat);
  chat = open_template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", t);
  expect(chat, hi, true, "!messages[1].content, the beginning of the answer, is not in what the template makes of it");
  chat_close(chat);
  tokenizer_destroy(t);
}

static const struct {
  const char *messages, *sentence;
} malformed[] = {
    {"[]", "messages is not a list with at least one message"},
    {"{}", "messages is not a list with at least one message"},
    {"[1]", "messages[0] is not an object"},
    {"[{\"content\": \"x\"}]", "messages[0].role is not a text"},
    {"[{\"role\": \"usr\", \"content\": \"x\"}]",
     "messages[0].role is \"usr\"; allowed: system, developer, user, assistant, tool"},
    {"[{\"role\": \"user\"}]", "messages[0].content is missing"},
    {"[{\"role\": \"user\", \"content\": 3}]", "messages[0].content is neither a text nor a list of parts"},
    {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
     "messages[0].content[0].type is \"image_url\"; plait reads parts of text"},
    {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "messages[0].content[0].text is not a text"},
    {"[{\"role\": \"user\", \"content\": \"x\", \"name\": 1}]", "messages[0].name is not a text"},
    {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}]",
     "messages[0].tool_calls[0].function.name is not a text"},
    {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": 1}}]}]",
     "messages[0].tool_calls[0].function.arguments is neither a text nor an object"},
    {"[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": 1}]", "messages[0].tool_calls is not a list"}};

static void test_malformed(void **state) {
  (void)state;
  Tokenizer *t = load("qwen2");
  Chat *chat = open_template("{% for m in messages %}{{ m.content }}{% endfor %}", t);
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    char *text = rendered(chat, malformed[i].messages, NULL, true, false);
    if (text[0] != '!' || strcmp(text + 1, malformed[i].sentence) != 0) fail_msg("%s: %s", malformed[i].messages, text);
    free(text);
  }
  char *text = rendered(chat, "[{\"role\": \"user\", \"content\": \"x\"}]", NULL, false, true);
  assert_string_equal(text, "!messages[0].role is not assistant: only an answer can be continued");
  free(text);
  chat_close(chat);
  tokenizer_destroy(t);
}

static void test_files(void **state) {
  (void)state;
  Tokenizer *t = load("qwen2");
  static const struct {
    const char *name;
    ChatForm form;
    bool reasoning;
  } kinds[] = {{"tools_hermes.jinja", CHAT_HERMES, true},
               {"headers.jinja", CHAT_LLAMA3},
               {"instructions.jinja", CHAT_MISTRAL},
               {"chatml.jinja", CHAT_NO_CALLS}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Chat *chat = open_file(kinds[i].name, t);
    assert_int_equal(chat_form(chat), kinds[i].form);
    assert_int_equal(chat_has_reasoning(chat), kinds[i].reasoning);
    chat_close(chat);
  }
  // A list of templates: the one for tools where there are some.
  json_t *files =
      json_pack("{s:s}", "tokenizer_config.json",
                "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain {{ messages[0].content }}\"}, "
                "{\"name\": \"tool_use\", \"template\": \"tools {{ messages[0].content }}\"}]}");
  Chat *chat;
  Error error = {0};
  assert_int_equal(chat_open_files(&chat, files, "m", NULL, t, &error), 0);
  char *plain = rendered(chat, "[{\"role\": \"user\", \"content\": \"x\"}]", NULL, true, false);
  char *tools = rendered(chat, "[{\"role\": \"user\", \"content\": \"x\"}]", "[{}]", true, false);
  assert_string_equal(plain, "plain x");
  assert_string_equal(tools, "tools x");
  free(plain);
  free(tools);
  chat_close(chat);
  assert_int_equal(chat_open_files(&chat, files, "m", "tool_use", t, &error), 0);
  char *named = rendered(chat, "[{\"role\": \"user\", \"content\": \"x\"}]", NULL, true, false);
  assert_string_equal(named, "tools x");
  free(named);
  chat_close(chat);
  assert_int_equal(chat_open_files(&chat, files, "m", "no_use", t, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "no_use: cannot be read: No such file or directory");
  error = (Error){0};
  // None, and broken ones.
  json_object_set_new(files, "tokenizer_config.json", json_string("{\"chat_template\": null}"));
  assert_int_equal(chat_open_files(&chat, files, "m", NULL, t, &error), 0);
  assert_null(chat);
  json_object_set_new(files, "chat_template.jinja", json_string("\n{{ x | nofilter }}"));
  assert_int_equal(chat_open_files(&chat, files, "m", NULL, t, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "m/chat_template.jinja: line 2: the filter \"nofilter\" is not built");
  json_object_set_new(files, "tokenizer_config.json", json_string("{"));
  error = (Error){0};
  assert_int_equal(chat_open_files(&chat, files, "m", NULL, t, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "m/tokenizer_config.json: line 1"));
  json_decref(files);
  tokenizer_destroy(t);
}

static void test_begins_reasoning(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool begins;
  } prompts[] = {{"a<think>\n", true}, {"<think>", true}, {"<think> x", false}, {"", false}, {"think>", false}};
  for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
    ByteVector text = {0};
    if (*prompts[i].text) bytes_append(&text, prompts[i].text, strlen(prompts[i].text));
    assert_int_equal(chat_begins_reasoning(&text), prompts[i].begins);
    vec_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_contents),  cmocka_unit_test(test_roles_make_tokens),
                                     cmocka_unit_test(test_forms),     cmocka_unit_test(test_malformed),
                                     cmocka_unit_test(test_files),     cmocka_unit_test(test_begins_reasoning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
