// Where an answer may be: a set of places in the nodes of a grammar, each with a stack of what is open around it. Bytes
// move them; a place that a byte does not fit dies.
#pragma once
#include "grammar/grammar_nodes.h"

enum { MOST_THREADS = 256, MOST_NESTING = 256, MOST_INDENT = 64, MOST_STEP = 8 };

// Containers that are open around a place. Frames do not change; equal ones are one.
typedef struct Frame {
  int parent, node; // parent -1: none
  int depth;        // of objects and arrays
  int index; // OBJECT: the first property that may come; ARRAY: elements so far, no more than matter; SEQUENCE: the
             // part
  int used;         // OBJECT: the list of other keys so far, -1: none
} Frame;

typedef struct UsedKey { int before; uint64_t hash; } UsedKey; // before: the rest of the list

typedef enum Mode {
  AT_VALUE,   // before a value of `node`
  IN_STRING,  // of `node`
  IN_NUMBER,  // of `node`
  IN_WORD,    // of `node`, `state` bytes done
  AT_FIRST,   // after { or [
  AT_KEY,     // after the comma of an object
  IN_KEY,     // of the object on the stack
  AT_COLON,   // after a key whose value is of `node`
  AFTER,      // after a value, or at the end of all
  IN_TEXT     // of an UNTIL, `state` bytes of its trigger done; count 1: it counts no more
} Mode;

// White space that may still come: none, one blank (after a colon), a blank or a new line, or the indent after a new
// line.
enum { BLANKS_NONE = 255, BLANKS_ONE = 254, BLANKS_ANY = 0, BLANKS_DONE = 1, BLANKS_LINE = 2 };

typedef struct Thread {
  int stack;    // a frame, -1: none
  int node;
  uint8_t mode, blanks;
  uint16_t place; // within a character of a string
  int state;      // of the automaton
  int count;      // characters of the string so far; of an indent: 1, it is tabs
  uint32_t code;  // of a key: the character so far
  uint64_t hash;  // of a key: its characters so far
} Thread;

typedef struct ThreadSet { Thread *data; int count; } ThreadSet;

// The memory of one answer: frames and lists of keys.
typedef struct Frames {
  const Grammar *g;
  Vec(Frame) frames;
  Vec(int) links;
  int heads[1024]; // frames by hash; -1: none
  Vec(UsedKey) used;
} Frames;

void frames_begin(Frames *f, const Grammar *g);
void frames_copy(Frames *to, const Frames *from);
void frames_free(Frames *f);
typedef struct FramesMark { int frames, used; } FramesMark;
FramesMark frames_mark(const Frames *f);
void frames_return(Frames *f, FramesMark mark); // forgets what was added since

// The places before the first byte, of which there are at most MOST_THREADS.
void threads_first(Frames *f, ThreadSet *to);
// The places that a byte leads to from some: to->data has room for MOST_THREADS. Where there would be more, the later
// ones are left out.
void threads_step(Frames *f, const Thread *from, int count, uint8_t byte, ThreadSet *to);
bool thread_is_text(const Frames *f, const Thread *t); // in text around JSON, where special tokens may stand
bool thread_may_end(const Frames *f, const Thread *t);
// Within a string or key, of which no prefix that is JSON leads to a dead end, but for its length.
bool thread_is_wide(const Frames *f, const Thread *t);
Thread thread_closed(Frames *f, const Thread *t); // after the quote that ends a string
const StringAutomaton *thread_string(const Frames *f, const Thread *t); // IN_STRING and IN_KEY
// Of keys that may be others than those of a list: a byte before the quote; then, at the quote, which key it is: a word
// of the list, STRING_OTHER, or STRING_REFUSED; and the place after the quote of another key.
bool thread_step_key(const StringAutomaton *a, Thread *t, uint8_t byte);
int thread_key_word(const Frames *f, const Thread *t);
Thread thread_after_other_key(Frames *f, const Thread *t);
// Moves within the text of an UNTIL. 1: the trigger is complete; -1: the byte may not come.
int text_step(const Node *n, Thread *t, uint8_t byte);
// Moves within the string's content: false where the byte does not belong there (or ends it).
bool thread_step_content(const StringAutomaton *a, Thread *t, uint8_t byte);
bool thread_is_live(const Frames *f, const StringAutomaton *a, const Thread *t); // what was read may become a string
