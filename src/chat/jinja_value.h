// Values of a running template, their texts, and the state of a run. For the files of the interpreter only.
#pragma once
#include "chat/jinja.h"
#include <locale.h>
#include <stdint.h>
#include <string.h>

typedef enum JinjaKind {
  JINJA_ABSENT,    // an argument that was not given
  JINJA_UNDEFINED, // name: of what there is not
  JINJA_NONE,
  JINJA_BOOLEAN,
  JINJA_INTEGER,
  JINJA_REAL,
  JINJA_STRING,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_DICT,
  JINJA_NAMESPACE,
  JINJA_LOOP,     // the variable `loop`
  JINJA_MACRO,
  JINJA_FUNCTION, // name: of a global function
  JINJA_METHOD    // a method of a value, or a function of a loop
} JinjaKind;

// Immutable, in the arena of the run or borrowed from what lives longer. UTF-8.
typedef struct JinjaString {
  const char *text;
  size_t bytes;
  const JinjaPart *parts; // (part_count); none: all bytes have `origin`
  int part_count, origin;
  bool safe; // it has gone through |safe: + escapes for HTML what it joins with such a text, as jinja2 does
} JinjaString;

typedef struct JinjaValue {
  JinjaKind kind;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const char *name;
    const JinjaString *string;
    struct JinjaList *list;
    struct JinjaDict *dict; // of dicts and namespaces
    struct JinjaLoop *loop;
    const struct JinjaMacro *macro;
    const struct JinjaMethod *method;
  };
} JinjaValue;

typedef struct JinjaList {
  JinjaValue *items;
  int count, capacity; // capacity 0: as many
  bool lazy; // jinja2 has a generator in its place: true also when empty, and without a length
} JinjaList;
typedef struct JinjaPair { JinjaValue key, value; } JinjaPair;
typedef struct JinjaDict { JinjaPair *pairs; int count, capacity; } JinjaDict; // in the order of insertion
typedef struct JinjaMethod { JinjaValue self; const char *name; } JinjaMethod;
typedef struct JinjaLoop {
  const JinjaList *items;
  int index;
  int depth; // 1, as in jinja2 where loops are not recursive
  JinjaValue changed; // what loop.changed was given last; ABSENT: nothing yet
} JinjaLoop;

typedef struct JinjaBinding { const char *name; JinjaValue value; } JinjaBinding; // names of the template are interned
typedef struct JinjaScope {
  struct JinjaScope *parent;
  JinjaBinding *bindings;
  int count, capacity;
} JinjaScope;
typedef struct JinjaMacro {
  const struct JinjaNode *node;
  JinjaScope *scope; // where it was made
} JinjaMacro;

typedef struct JinjaArguments {
  const JinjaValue *items;
  int count;
  const char *const *names;
  const JinjaValue *named;
  int named_count;
} JinjaArguments;

// A text that is being put together.
typedef struct JinjaText {
  ByteVector bytes;
  JinjaPartVector parts;
} JinjaText;

typedef struct Jinja {
  const JinjaTemplate *template;
  Arena arena;
  JinjaLimits limits;
  int64_t steps;
  int depth, line; // nesting; of the node that runs
  int leaves;      // NODE_BREAK or NODE_CONTINUE on its way to its loop; 0: none
  int code;        // not PLAIT_OK: it has failed, and all functions return at once
  Error *error;
  JinjaText *out;
  JinjaScope *globals;
  locale_t locale;            // for letters outside of ASCII; 0: not needed yet
  const JinjaValue *filtered; // what the filters of a block take
} Jinja;

enum { JINJA_DEPTH = 600 }; // of nested expressions, statements and macros: bounded by the stack of a thread

// Sets the sentence "NAME: line N: …" and returns undefined.
JinjaValue jinja_fail(Jinja *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool jinja_step(Jinja *j, size_t work); // counts; false: it has failed, or now exceeds a limit
bool jinja_enter(Jinja *j);             // one level deeper; false: too deep. In each case jinja_leave follows
void jinja_leave(Jinja *j);
void *jinja_alloc(Jinja *j, size_t count, size_t size); // in the arena

// ---- making values

static inline JinjaValue jinja_none(void) { return (JinjaValue){.kind = JINJA_NONE}; }
static inline JinjaValue jinja_bool(bool b) { return (JinjaValue){.kind = JINJA_BOOLEAN, .boolean = b}; }
static inline JinjaValue jinja_integer(int64_t i) { return (JinjaValue){.kind = JINJA_INTEGER, .integer = i}; }
static inline JinjaValue jinja_real(double f) { return (JinjaValue){.kind = JINJA_REAL, .real = f}; }
static inline JinjaValue jinja_undefined(const char *name) {
  return (JinjaValue){.kind = JINJA_UNDEFINED, .name = name};
}
JinjaValue jinja_string(Jinja *j, const char *text, size_t bytes, int origin); // borrows the text
JinjaValue jinja_list(Jinja *j, int count, JinjaKind kind);                    // items are undefined
JinjaValue jinja_dict(Jinja *j);
void jinja_push(Jinja *j, JinjaList *list, JinjaValue v);
void jinja_dict_put(Jinja *j, JinjaDict *d, JinjaValue key, JinjaValue value);
void jinja_dict_append(Jinja *j, JinjaDict *d, JinjaValue key, JinjaValue value); // a key that it does not have
JinjaValue *jinja_dict_find(Jinja *j, const JinjaDict *d, JinjaValue key);        // NULL: none
JinjaValue *jinja_dict_find_text(const JinjaDict *d, const char *key);
JinjaValue jinja_from_json(Jinja *j, const json_t *json, int origin);
static inline bool jinja_is_text(JinjaValue v, const char *text) {
  return v.kind == JINJA_STRING && v.string->bytes == strlen(text) && !memcmp(v.string->text, text, v.string->bytes);
}
static inline bool jinja_is_list(JinjaValue v) { return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE; }

// ---- texts

void jinja_put(Jinja *j, JinjaText *t, const char *text, size_t bytes, int origin);
void jinja_put_part(Jinja *j, JinjaText *t, const JinjaString *s, size_t from, size_t to); // with its origins
void jinja_put_string(Jinja *j, JinjaText *t, const JinjaString *s);
void jinja_put_word(Jinja *j, JinjaText *t, const char *word); // the template's
void jinja_put_value(Jinja *j, JinjaText *t, JinjaValue v);    // as str() of Python
void jinja_put_repr(Jinja *j, JinjaText *t, JinjaValue v);     // as repr()
JinjaValue jinja_text_end(Jinja *j, JinjaText *t);             // the string; frees t
JinjaValue jinja_part(Jinja *j, const JinjaString *s, size_t from, size_t to);
JinjaValue jinja_from_text(Jinja *j, JinjaValue text); // of JSON
JinjaValue jinja_str(Jinja *j, JinjaValue v);                  // str(v): itself where it is a string
JinjaValue jinja_safe(Jinja *j, JinjaValue v);                 // |safe
int jinja_origin(const JinjaString *s, size_t at);             // of a byte
enum { JINJA_REAL_TEXT = 64 };
char *jinja_real_text(double f, char text[JINJA_REAL_TEXT]); // repr() of a float

int64_t jinja_chars(const JinjaString *s);                     // its length in characters
size_t jinja_char_at(const JinjaString *s, int64_t index);     // its byte; the end where it is shorter
size_t jinja_space(const char *text, size_t bytes);            // bytes of the white space it begins with: 0 … 3
size_t jinja_space_before(const char *text, size_t bytes);     // that it ends with

// ---- asking values

bool jinja_truth(JinjaValue v);
const char *jinja_type(JinjaValue v); // Python's name of its type
bool jinja_equal(Jinja *j, JinjaValue a, JinjaValue b);
int jinja_compare(Jinja *j, JinjaValue a, JinjaValue b); // below 0, 0, above 0; fails where Python has no order
bool jinja_number(JinjaValue v, double *number);         // integers, reals and booleans
bool jinja_whole(JinjaValue v, int64_t *number);         // integers and booleans
// The items that a loop over it runs through; fails where it cannot be iterated over.
const JinjaList *jinja_iterate(Jinja *j, JinjaValue v);
bool jinja_contains(Jinja *j, JinjaValue in, JinjaValue item);
int64_t jinja_length(Jinja *j, JinjaValue v);

// ---- what runs expressions (jinja_eval.c, jinja_call.c, jinja_filter.c …)

JinjaValue jinja_eval(Jinja *j, JinjaScope *scope, const struct JinjaNode *node);
bool jinja_exec(Jinja *j, JinjaScope *scope, const struct JinjaNode *node); // false: break, continue or a failure
JinjaScope *jinja_scope(Jinja *j, JinjaScope *parent);
void jinja_bind(Jinja *j, JinjaScope *scope, const char *name, JinjaValue value);
JinjaValue jinja_attribute(Jinja *j, JinjaValue v, const char *name);
JinjaValue jinja_item(Jinja *j, JinjaValue v, JinjaValue key);
JinjaValue jinja_slice(Jinja *j, JinjaValue v, JinjaValue from, JinjaValue to, JinjaValue step);
JinjaValue jinja_call(Jinja *j, JinjaValue function, const JinjaArguments *arguments);
JinjaValue jinja_call_macro(Jinja *j, const JinjaMacro *macro, const JinjaArguments *arguments, JinjaValue caller);
JinjaValue jinja_filter(Jinja *j, const char *name, JinjaValue v, const JinjaArguments *arguments);
bool jinja_test(Jinja *j, const char *name, JinjaValue v, const JinjaArguments *arguments);
JinjaValue jinja_binary(Jinja *j, int op, JinjaValue a, JinjaValue b);
JinjaValue jinja_format(Jinja *j, const JinjaString *format, const JinjaValue *items, int count); // format % items
JinjaValue jinja_tojson(Jinja *j, JinjaValue v, const JinjaArguments *arguments);
JinjaValue jinja_strip(Jinja *j, const JinjaString *s, JinjaValue characters, bool left, bool right);
JinjaValue jinja_replace(Jinja *j, JinjaValue s, JinjaValue from, JinjaValue to, JinjaValue count);
JinjaValue jinja_case(Jinja *j, const JinjaString *s, const char *which); // upper, lower, title, capitalize
JinjaValue jinja_string_method(Jinja *j, const JinjaString *s, const char *name, const JinjaArguments *arguments);
const char *jinja_attribute_name(Jinja *j, JinjaValue v); // a text with an end
bool jinja_has_filter(const char *name);
bool jinja_has_test(const char *name);
bool jinja_has_string_method(const char *name);
// Puts arguments in the order of `names` (count) into `values`, ABSENT where they are not given; false: it has failed.
bool jinja_arguments(Jinja *j, const char *what, const JinjaArguments *arguments, const char *const *names,
                     JinjaValue *values, int count, int needed);
