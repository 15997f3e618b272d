// The key table of recipes (recipe_keys.c): one row a key, from which all else about it follows. Look-ups in it are in
// recipe_key_lookup.c; what prints and compares values, in recipe_print.c.
#pragma once
#include "recipe/recipe.h"

typedef enum RecipeKind {
  RECIPE_INT,          // int; "auto" where has_auto
  RECIPE_LONG,         // int64_t; "auto" where has_auto
  RECIPE_REAL,         // double
  RECIPE_LR,           // double: a learning rate; below 0: −N of `N %` of optimizer.lr (recipe_min_lr)
  RECIPE_PAIR,         // double[2]
  RECIPE_AXIS_LIST,    // LayoutWords; "auto" allowed
  RECIPE_INTS,         // RecipeInts
  RECIPE_BOOL,         // bool
  RECIPE_CHOICE,       // int, the value of one of the words
  RECIPE_MB,           // int, the value of one of the words, or N of `N MB`
  RECIPE_BYTES,        // int64_t, 0: not given
  RECIPE_WORD_OR_LIST, // RecipeWordOrList
  RECIPE_PATH,         // char *, absolute
  RECIPE_WORD_OR_PATH, // char *, one of the words as it is, else an absolute path
  RECIPE_NAME_OR_PATH, // char *, a name as it is; with a / or the end .yaml an absolute path
  RECIPE_CORPORA,      // RecipeCorpora
} RecipeKind;

typedef struct RecipeWord {
  const char *name; // NULL ends the list
  int value;
  bool later; // known, not built yet
} RecipeWord;

typedef struct RecipeKey {
  const char *path; // "batch.micro"
  RecipeKind kind;
  size_t offset;          // in Recipe
  const char *fallback;   // default, in YAML; NULL: none
  bool required;          // must be given
  double least, most;     // of numbers; most INFINITY: open
  bool above, below;      // least and most themselves are not allowed
  bool one_for_all;       // of RECIPE_INTS: one number is allowed instead of a list
  bool has_auto;          // "auto" is allowed …
  int64_t automatic;      // … and stored as this
  const char *auto_word;  // … or this word instead of it ("none")
  const RecipeWord *words;
  const char *(*meaning)(int value); // of a word, for docs/recipes.md; NULL: `doc` has it
  bool inference;      // also for plait eval and generate …
  bool generation;     // … and only for commands that generate: neither for eval nor for training
  bool another_run;    // a run that resumes with another value would be another run: refused without --force
  bool of_this_start;  // says where this start reads and writes, nothing about the run
  const char *example; // in YAML, for the recipe that docs/recipes.md starts with; NULL: not shown there
  const char *doc;     // one sentence or two
} RecipeKey;

extern const RecipeKey recipe_keys[];
extern const int recipe_key_count;

// A renamed key (recipe_aliases.def).
typedef struct RecipeAlias {
  const char *old, *path;    // path is that of a key
  const char *values[3][2];  // {old, new}; NULL ends them
} RecipeAlias;
extern const RecipeAlias recipe_aliases[];
extern const int recipe_alias_count;

const RecipeAlias *recipe_alias_find(const char *old); // NULL when the path was never renamed
// How a value of the old key is written now: the value itself, or one that lives for ever.
const char *recipe_alias_value(const RecipeAlias *alias, const char *value);

// Another system's name of a key, and its words of values (recipe_synonyms.def).
typedef struct RecipeSynonym { const char *theirs, *path, *value, *note; } RecipeSynonym; // value, note: "" without
extern const RecipeSynonym recipe_synonyms[];
extern const int recipe_synonym_count;
extern const char *const recipe_word_synonyms[][2]; // {theirs, word}
extern const int recipe_word_synonym_count;

// The key that another name, of another system or without its section, surely means ("learning_rate", "training.lr",
// "lr"), or NULL.
const RecipeKey *recipe_key_meant(const char *path);
// The key that was probably meant by an unknown one ("batch.mikro", "training.learning_rate"): "; did you mean
// batch.micro?"; "" where nothing is near.
const char *recipe_key_hint(const char *path, Arena *arena);
// The same for a value of a key that it does not allow: "; did you mean bf16?".
const char *recipe_word_hint(const RecipeKey *key, const char *value, Arena *arena);

const RecipeKey *recipe_key_find(const char *path); // NULL when there is none
bool recipe_section_exists(const char *name);       // "batch"
const RecipeWord *recipe_word(const RecipeKey *key, const char *name); // one of the key's words, or NULL

// Whether a recipe's value of a key fulfils "> 1", "= 3", "= true", "= WORD", "!= WORD", of a path "= given", or of a
// row of `layout:`, its own or that of the shipped Layout, "has AXIS", or of optimizer.name, does the optimizer read
// one of its keys, "reads KEY".
bool recipe_fulfils(const Recipe *recipe, const RecipeKey *key, const char *condition);
bool recipe_value_equal(const RecipeKey *key, const Recipe *a, const Recipe *b);
// A value as the effective recipe has it, on one line, or "not given"; the caller frees it.
char *recipe_value_text(const Recipe *recipe, const char *path);

// Describes a key: its doc, the meaning of its words, and which optimizers read it. Names stand in backticks.
void recipe_key_describe(const RecipeKey *key, FILE *out);

// The axes that rows of a Layout may name: "dp, cp, tp … and tp_depth".
void recipe_axes_allowed(char *out, size_t size);

const char *recipe_auto_word(const RecipeKey *key); // "auto", or what the key calls it; NULL: there is none
// The allowed values, as words after "must be": "an integer of at least 1".
void recipe_key_allowed(const RecipeKey *key, char *out, size_t size);

// The part of a path after the dot ("micro"), and the length of the section before it (0 for "precision").
const char *recipe_key_leaf(const RecipeKey *key);
int recipe_key_section_length(const RecipeKey *key);
