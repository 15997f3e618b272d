// Where an answer may be: moving the places of a grammar by one byte.
#include "grammar/threads.h"
#include "base/fault.h"
#include "base/hash.h"
#include <string.h>

// ---- frames ---------------------------------------------------------------------------------------------------------

void frames_begin(Frames *f, const Grammar *g) {
  *f = (Frames){.g = g};
  memset(f->heads, 0xff, sizeof f->heads);
}

void frames_free(Frames *f) {
  vec_free(&f->frames);
  vec_free(&f->links);
  vec_free(&f->used);
}

void frames_copy(Frames *to, const Frames *from) {
  frames_begin(to, from->g);
  memcpy(to->heads, from->heads, sizeof to->heads);
  for (int i = 0; i < from->frames.count; i++) {
    vec_push(&to->frames, from->frames.data[i]);
    vec_push(&to->links, from->links.data[i]);
  }
  for (int i = 0; i < from->used.count; i++) vec_push(&to->used, from->used.data[i]);
}

static int *head_of(Frames *f, const Frame *x) {
  uint64_t h = hash_mix((uint64_t)x->parent << 32 | (uint32_t)x->node, (uint64_t)x->index << 32 | (uint32_t)x->used);
  return &f->heads[(h ^ h >> 32) % 1024];
}

static int push(Frames *f, Frame x) {
  int *head = head_of(f, &x);
  for (int i = *head; i >= 0; i = f->links.data[i]) {
    const Frame *y = &f->frames.data[i];
    if (y->parent == x.parent && y->node == x.node && y->index == x.index && y->used == x.used) return i;
  }
  vec_push(&f->frames, x);
  vec_push(&f->links, *head);
  return *head = f->frames.count - 1;
}

FramesMark frames_mark(const Frames *f) { return (FramesMark){f->frames.count, f->used.count}; }

void frames_return(Frames *f, FramesMark mark) {
  while (f->frames.count > mark.frames) {
    *head_of(f, &f->frames.data[f->frames.count - 1]) = f->links.data[f->links.count - 1];
    f->frames.count--;
    f->links.count--;
  }
  f->used.count = mark.used;
}

static const Node *node_of(const Frames *f, int node) { return &f->g->nodes.data[node]; }
static int depth_of(const Frames *f, int frame) { return frame < 0 ? 0 : f->frames.data[frame].depth; }

static Thread place(int stack, int node, Mode mode, int blanks) {
  Thread t;
  memset(&t, 0, sizeof t); // threads are compared byte by byte
  t.stack = stack;
  t.node = node;
  t.mode = (uint8_t)mode;
  t.blanks = (uint8_t)blanks;
  return t;
}

// ---- strings --------------------------------------------------------------------------------------------------------

bool thread_step_content(const StringAutomaton *a, Thread *t, uint8_t byte) {
  int next = a->chars.next[t->place * 256 + byte];
  if (next < 0) return false;
  if (a->any && !t->place && FAULT(lengths_have_no_end, a->max >= 0 && t->count >= a->max, false)) return false;
  if (next < CHAR_DONE) return t->place = (uint16_t)next, true;
  int state = a->next[t->state * a->kinds + next - CHAR_DONE];
  if (state < 0) return false;
  t->state = state;
  t->place = 0;
  if (a->any && (a->max >= 0 || t->count < a->min)) t->count++;
  return true;
}

// The characters of a key, one by one, into its hash: two spellings of one key are one.
static void hash_key(const StringAutomaton *a, const Thread *before, Thread *t, uint8_t byte) {
  static const char names[] = "bfnrt", codes[] = "\b\f\n\r\t";
  bool first = before->place == 0;
  if (byte >= 0xC0) t->code = byte & (byte < 0xE0 ? 31 : byte < 0xF0 ? 15 : 7);
  else if (byte >= 0x80) t->code = t->code << 6 | (byte & 63);
  else if (first) t->code = byte == '\\' ? 0 : byte;
  else if (byte != 'u' && byte != '\\' && before->code == 0 && a->chars.next[before->place * 256 + 'u'] >= 0 &&
           t->place == 0) {
    const char *name = strchr(names, byte); // one letter after a backslash
    t->code = name ? (uint8_t)codes[name - names] : byte;
  } else if (byte == '\\' && t->place == 0) t->code = '\\';
  else if (byte != 'u' && byte != '\\')
    t->code = t->code << 4 | (uint32_t)(byte <= '9' ? byte - '0' : (byte | 32) - 'a' + 10);
  if (t->place) return;
  if (t->code >= 0xD8000000) t->code = 0x10000 + ((t->code >> 16) - 0xD800) * 0x400 + ((t->code & 0xFFFF) - 0xDC00);
  t->hash = hash_mix(t->hash, t->code + 1ull);
  t->code = 0;
}

// Whether a property from the frame's on, and no later than the next required one, has a name that begins so.
static bool state_is_live(const Frames *f, const StringAutomaton *a, int stack, int state) {
  const Frame *frame = &f->frames.data[stack];
  const Node *n = node_of(f, frame->node);
  if (a->others) return true;
  for (int i = a->word_start[state]; i < a->word_start[state + 1]; i++)
    if (a->words[i] >= frame->index && a->words[i] <= n->next_required[frame->index]) return true;
  return false;
}

bool thread_is_live(const Frames *f, const StringAutomaton *a, const Thread *t) {
  if (t->mode != IN_KEY) return !t->place || string_is_live(a, t->state, t->place);
  if (!t->place) return state_is_live(f, a, t->stack, t->state);
  const uint64_t *reach = a->chars.reach + (size_t)t->place * (size_t)a->chars.words;
  for (int k = 0; k < a->kinds; k++) {
    int state = reach[k / 64] >> k % 64 & 1 ? a->next[t->state * a->kinds + k] : STRING_REFUSED;
    if (state >= 0 && state_is_live(f, a, t->stack, state)) return true;
  }
  return false;
}

const StringAutomaton *thread_string(const Frames *f, const Thread *t) {
  int node = t->mode == IN_KEY ? f->frames.data[t->stack].node : t->node;
  return &f->g->strings.data[node_of(f, node)->automaton];
}

bool thread_is_wide(const Frames *f, const Thread *t) {
  if (t->mode != IN_STRING && t->mode != IN_KEY) return false;
  const StringAutomaton *a = thread_string(f, t);
  return t->mode == IN_STRING || a->others;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

static void step(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to);

static void add(ThreadSet *to, const Thread *t) {
  for (int i = 0; i < to->count; i++)
    if (!memcmp(&to->data[i], t, sizeof *t)) return;
  if (to->count < MOST_THREADS) memcpy(&to->data[to->count++], t, sizeof *t);
}

static Thread at_value(Frames *f, int stack, int node, int blanks) {
  const Node *n = node_of(f, node);
  if (n->kind == NODE_SEQUENCE) {
    int frame = push(f, (Frame){.parent = stack, .node = node, .depth = depth_of(f, stack), .used = -1});
    return at_value(f, frame, n->parts[0], n->blank ? BLANKS_ONE : blanks);
  }
  return place(stack, node, n->kind == NODE_UNTIL ? IN_TEXT : AT_VALUE, blanks);
}

// A value has ended, that of the frame at the top of the stack is complete but for what follows it.
static Thread completed(Frames *f, int stack) {
  for (; stack >= 0; stack = f->frames.data[stack].parent) {
    Frame frame = f->frames.data[stack];
    const Node *n = node_of(f, frame.node);
    if (n->kind == NODE_UNTIL && n->again) return place(frame.parent, frame.node, IN_TEXT, BLANKS_NONE);
    if (n->kind == NODE_UNTIL) continue;
    if (n->kind != NODE_SEQUENCE) break;
    if (++frame.index < n->count)
      return at_value(f, push(f, frame), n->parts[frame.index], n->blank ? BLANKS_ONE : BLANKS_NONE);
  }
  return place(stack, 0, AFTER, stack < 0 ? BLANKS_NONE : BLANKS_ANY);
}

// The indent of a new line is one that json.dumps may write: blanks, 8 at most for each container that is open, or a
// tab for each. A weak model would fill it without an end.
static bool take_indent(Thread *t, uint8_t byte, int depth) {
  bool tabs = byte == '\t', first = t->blanks == BLANKS_LINE;
  int most = depth * (tabs ? 1 : MOST_STEP) < MOST_INDENT ? depth * (tabs ? 1 : MOST_STEP) : MOST_INDENT;
  if ((byte != ' ' && !tabs) || (!first && tabs != t->count)) return false;
  if (t->blanks >= BLANKS_LINE + FAULT(white_space_has_no_end, most, 200)) return false;
  t->count = tabs;
  t->blanks += FAULT(white_space_has_no_end, 1, 0);
  return true;
}

static bool take_blank(Thread *t, uint8_t byte, int depth) {
  if (byte == ' ' && t->blanks == BLANKS_ONE) return t->blanks = BLANKS_NONE, true;
  if (t->blanks == BLANKS_ANY && byte == ' ') return t->blanks = BLANKS_DONE, true;
  if (t->blanks == BLANKS_ANY && byte == '\n') return t->blanks = BLANKS_LINE, true;
  return t->blanks >= BLANKS_LINE && t->blanks < BLANKS_ONE && take_indent(t, byte, depth);
}

static void step_content(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  const StringAutomaton *a = thread_string(f, t);
  Thread next = *t;
  if (!(t->mode == IN_KEY && a->others ? thread_step_key : thread_step_content)(a, &next, byte)) return;
  if ((a->any || a->others) || thread_is_live(f, a, &next)) add(to, &next);
}

Thread thread_closed(Frames *f, const Thread *t) { return completed(f, t->stack); }

static void step_string(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  const StringAutomaton *a = thread_string(f, t);
  if (byte != '"' || t->place) {
    step_content(f, t, byte, to);
    return;
  }
  if (a->out[t->state] == STRING_REFUSED || (a->any && t->count < a->min)) return;
  Thread next = thread_closed(f, t);
  add(to, &next);
}

int text_step(const Node *n, Thread *t, uint8_t byte) {
  bool matches = (uint8_t)n->text[t->state] == byte && !t->count;
  if (!matches && !n->free) return -1;
  if (!matches && n->start) t->count = 1;
  if (t->count) return t->state = 0;
  while (t->state && (uint8_t)n->text[t->state] != byte) t->state = n->fallback[t->state];
  if ((uint8_t)n->text[t->state] == byte) t->state++;
  return (size_t)t->state == n->bytes;
}

static bool was_used(const Frames *f, int list, uint64_t hash) {
  for (; list >= 0; list = f->used.data[list].before)
    if (f->used.data[list].hash == hash) return true;
  return false;
}

bool thread_step_key(const StringAutomaton *a, Thread *t, uint8_t byte) {
  Thread before = *t;
  if (!thread_step_content(a, t, byte)) return false;
  hash_key(a, &before, t, byte);
  return true;
}

int thread_key_word(const Frames *f, const Thread *t) {
  const Frame *frame = &f->frames.data[t->stack];
  const Node *n = node_of(f, frame->node);
  int word = t->place ? STRING_REFUSED : f->g->strings.data[n->automaton].out[t->state];
  if (word == STRING_OTHER)
    return FAULT(keys_come_twice, was_used(f, frame->used, t->hash), false) ? STRING_REFUSED : word;
  if (word < frame->index || word > FAULT(required_is_optional, n->next_required[frame->index], n->count) ||
      n->parts[word] < 0)
    return STRING_REFUSED;
  return word;
}

Thread thread_after_other_key(Frames *f, const Thread *t) {
  Frame frame = f->frames.data[t->stack];
  UsedKey key = {frame.used, t->hash};
  vec_push(&f->used, key);
  frame.used = f->used.count - 1;
  return place(push(f, frame), node_of(f, frame.node)->rest, AT_COLON, BLANKS_NONE);
}

static void step_key(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  if (byte != '"' || t->place) {
    step_content(f, t, byte, to);
    return;
  }
  int word = thread_key_word(f, t);
  if (word == STRING_REFUSED) return;
  Frame frame = f->frames.data[t->stack];
  frame.index = word + 1;
  Thread next;
  if (word == STRING_OTHER) next = thread_after_other_key(f, t);
  else next = place(push(f, frame), node_of(f, frame.node)->parts[word], AT_COLON, BLANKS_NONE);
  add(to, &next);
}

static void step_number(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  const NumberAutomaton *a = &f->g->numbers.data[node_of(f, t->node)->automaton];
  int class = number_class(byte), state = class < 0 ? -1 : a->next[t->state * NUMBER_CLASSES + class];
  Thread next = *t;
  if (state >= 0) {
    next.state = state;
    add(to, &next);
  } else if (a->ends[t->state]) {
    next = completed(f, t->stack);
    step(f, &next, byte, to);
  }
}

static void step_word(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  const Node *n = node_of(f, t->node);
  Thread next = *t;
  if ((size_t)t->state < n->bytes) {
    if ((uint8_t)n->text[t->state] != byte) return;
    next.state++;
    // a word of a number may be the beginning of another one, so it ends when something else comes
    if ((size_t)next.state == n->bytes) next = completed(f, t->stack);
    add(to, &next);
  }
}

static void open_container(Frames *f, const Thread *t, int node, ThreadSet *to) {
  int depth = depth_of(f, t->stack) + 1;
  if (depth > MOST_NESTING) return;
  Thread next =
      place(push(f, (Frame){.parent = t->stack, .node = node, .depth = depth, .used = -1}), node, AT_FIRST, BLANKS_ANY);
  add(to, &next);
}

static void begin(Frames *f, const Thread *t, int node, uint8_t byte, ThreadSet *to) {
  const Node *n = node_of(f, node);
  Thread next = place(t->stack, node, AT_VALUE, BLANKS_NONE);
  switch (n->kind) {
  case NODE_UNION:
    for (int i = 0; i < n->count; i++) begin(f, t, n->parts[i], byte, to);
    break;
  case NODE_STRING:
    next.mode = IN_STRING;
    if (byte == '"') add(to, &next);
    break;
  case NODE_NUMBER:
    next.mode = IN_NUMBER;
    if (number_class(byte) >= 0) step_number(f, &next, byte, to);
    break;
  case NODE_WORD:
    next.mode = IN_WORD;
    step_word(f, &next, byte, to);
    break;
  case NODE_OBJECT:
    if (byte == '{') open_container(f, t, node, to);
    break;
  case NODE_ARRAY:
    if (byte == '[') open_container(f, t, node, to);
    break;
  case NODE_SEQUENCE:
  case NODE_UNTIL: // an alternative
    next = at_value(f, t->stack, node, BLANKS_NONE);
    step(f, &next, byte, to);
    break;
  }
}

// Whether the container at the top may end here, and whether it may have another element or key.
static bool may_close(const Frame *x, const Node *n) {
  return n->kind == NODE_OBJECT ? n->next_required[x->index] == n->count : x->index >= n->min;
}

static bool may_continue(const Frames *f, const Frame *x, const Node *n) {
  if (n->kind == NODE_OBJECT) return state_is_live(f, &f->g->strings.data[n->automaton], (int)(x - f->frames.data), 0);
  return n->max < 0 || x->index < n->max;
}

// The next element of an array: the array's frame counts it.
static Thread at_element(Frames *f, int stack, int blanks) {
  Frame frame = f->frames.data[stack];
  const Node *n = node_of(f, frame.node);
  int part = frame.index < n->count ? n->parts[frame.index] : n->rest;
  int64_t matter = n->max >= 0 ? n->max : n->min > n->count ? n->min : n->count;
  if (frame.index < matter) frame.index++;
  return at_value(f, push(f, frame), part, blanks);
}

static void step_first(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  Frame frame = f->frames.data[t->stack];
  const Node *n = node_of(f, frame.node);
  Thread next = *t;
  bool object = n->kind == NODE_OBJECT;
  if (byte == (object ? '}' : ']') && may_close(&frame, n)) {
    next = completed(f, frame.parent);
    add(to, &next);
  } else if (take_blank(&next, byte, frame.depth)) add(to, &next);
  else if (object && byte == '"' && may_continue(f, &f->frames.data[t->stack], n)) {
    next = place(t->stack, 0, IN_KEY, BLANKS_NONE);
    add(to, &next);
  } else if (!object && may_continue(f, &f->frames.data[t->stack], n)) {
    next = at_element(f, t->stack, BLANKS_NONE);
    step(f, &next, byte, to);
  }
}

static void step_after(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  if (t->stack < 0) return;
  Frame frame = f->frames.data[t->stack];
  const Node *n = node_of(f, frame.node);
  Thread next = *t;
  bool object = n->kind == NODE_OBJECT, closes = may_close(&frame, n);
  if (byte == ',' && t->blanks == BLANKS_ANY && may_continue(f, &f->frames.data[t->stack], n)) {
    next = object ? place(t->stack, 0, AT_KEY, BLANKS_ANY) : at_element(f, t->stack, BLANKS_ANY);
    add(to, &next);
  } else if (byte == (object ? '}' : ']') && FAULT(arrays_end_early, closes, true)) {
    next = completed(f, frame.parent);
    add(to, &next);
  } else if (closes && take_blank(&next, byte, frame.depth - 1)) add(to, &next);
}

// The trigger may begin at each byte, or only at the first one.
static void step_text(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  const Node *n = node_of(f, t->node);
  Thread next = *t;
  int same = text_step(n, &next, byte);
  if (same < 0) return;
  if (same) {
    if (!n->count) return;
    Frame frame = {.parent = t->stack, .node = t->node, .depth = depth_of(f, t->stack), .used = -1};
    next = at_value(f, push(f, frame), n->parts[0], n->blank ? BLANKS_ONE : BLANKS_NONE);
  }
  add(to, &next);
}

static void step(Frames *f, const Thread *t, uint8_t byte, ThreadSet *to) {
  Thread next = *t;
  switch ((Mode)t->mode) {
  case AT_VALUE:
    if (take_blank(&next, byte, depth_of(f, t->stack))) add(to, &next);
    else begin(f, t, t->node, byte, to);
    break;
  case IN_STRING: step_string(f, t, byte, to); break;
  case IN_NUMBER: step_number(f, t, byte, to); break;
  case IN_WORD: step_word(f, t, byte, to); break;
  case AT_FIRST: step_first(f, t, byte, to); break;
  case AT_KEY:
    if (take_blank(&next, byte, depth_of(f, t->stack))) add(to, &next);
    else if (byte == '"') {
      next = place(t->stack, 0, IN_KEY, BLANKS_NONE);
      add(to, &next);
    }
    break;
  case IN_KEY: step_key(f, t, byte, to); break;
  case AT_COLON:
    if (byte == ':') {
      next = at_value(f, t->stack, t->node, BLANKS_ONE);
      add(to, &next);
    }
    break;
  case AFTER: step_after(f, t, byte, to); break;
  case IN_TEXT: step_text(f, t, byte, to); break;
  }
}

// Text beside other alternatives, and words before a call, are places of their own: text may end at once, and both may
// have special tokens.
void threads_first(Frames *f, ThreadSet *to) {
  const Node *root = node_of(f, f->g->root);
  bool text = false;
  to->count = 0;
  for (int i = 0; i < root->count && root->kind == NODE_UNION; i++) {
    NodeKind kind = node_of(f, root->parts[i])->kind;
    text |= kind == NODE_UNTIL || FAULT(calls_beside_documents_lack_marks, kind == NODE_SEQUENCE, false);
  }
  for (int i = 0; i < (text ? root->count : 1); i++) {
    Thread t = at_value(f, -1, text ? root->parts[i] : f->g->root, BLANKS_NONE);
    add(to, &t);
  }
}

void threads_step(Frames *f, const Thread *from, int count, uint8_t byte, ThreadSet *to) {
  to->count = 0;
  for (int i = 0; i < count; i++) step(f, &from[i], byte, to);
}

bool thread_is_text(const Frames *f, const Thread *t) {
  if (t->mode == IN_TEXT) return !node_of(f, t->node)->must;
  const Node *n = t->mode == AT_VALUE ? node_of(f, t->node) : NULL;
  return n && n->kind == NODE_WORD && t->stack >= 0 && node_of(f, f->frames.data[t->stack].node)->kind == NODE_SEQUENCE;
}

bool thread_may_end(const Frames *f, const Thread *t) {
  const Node *own = node_of(f, t->node);
  if (t->mode == IN_NUMBER && !f->g->numbers.data[own->automaton].ends[t->state]) return false;
  if (t->mode == IN_TEXT && (FAULT(parameters_end_early, own->must, false) || (!own->free && t->state))) return false;
  if (t->mode == AFTER) return t->stack < 0;
  if (t->mode != IN_NUMBER && t->mode != IN_TEXT) return false;
  for (int stack = t->stack; stack >= 0; stack = f->frames.data[stack].parent) { // all that is open ends with it
    const Frame *x = &f->frames.data[stack];
    const Node *n = node_of(f, x->node);
    if (n->kind != NODE_UNTIL && (n->kind != NODE_SEQUENCE || x->index + 1 < n->count)) return false;
  }
  return true;
}
