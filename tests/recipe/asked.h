// A recipe as keys and values, for tests that compare with it what was compiled.
#pragma once

enum { MOST_KEYS = 64, SETTING = 300 };
typedef struct Asked { int count; char setting[MOST_KEYS][SETTING]; } Asked; // "mesh.dp=4"

// The value of a key: as asked, or its default; NULL: there is none.
const char *asked(const Asked *asked, const char *key);
int is_asked(const Asked *asked, const char *key, const char *value);
int asked_int(const Asked *asked, const char *key);
// 0: another value was asked for already.
int ask(Asked *asked, const char *key, const char *value);
int ask_all(Asked *asked, const char *settings); // the same by "key=value key=value"
Asked without(const Asked *asked, const char *key);
const char *asked_text(const Asked *asked); // for messages; until the next call
