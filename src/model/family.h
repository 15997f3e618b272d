// A model family: all that plait knows of it, made by one file, src/model/families/NAME.c, with one line in
// families.def.
//
// How to add one (docs/families.md): `const Family family_NAME` in src/model/families/NAME.c. Code that several
// families share lies beside this file: config_reader.h (typed keys), build.h (parts of graphs), rotary.h and learned.h
// (whole decoders). A family's folder includes these, and never another family's folder.
#pragma once
#include "model/build.h"
#include "model/config_reader.h"
#include "model/example.h"

struct Family {
  const char *model_type;     // of its config.json
  const char *architecture;   // what its config.json calls the class: "…ForCausalLM"
  // Reads its keys into *config. A value that it cannot have is refused by its key; the reader keeps the first error.
  void (*read)(ConfigReader *reader, ModelConfig *config);
  // Embedding, blocks, final norm and head. Whatever limits the length of sequences is said with build_limit.
  void (*build)(ModelBuild *m, ModelOutputs *outputs);
  const ConfigAlias *aliases; // keys that transformers reads under another name, too; NULL: none
  // Which tensor of a Hugging Face folder is which Variable (checkpoint/huggingface_views.h): a text for each layout
  // that such folders have, up to NULL. The first is written.
  const char *const *layouts;
  const char *prefix;         // with which these names begin, and which folders of the bare model leave out
  // Of a family that stands for a common shape (model/example.h): a config.json, as a format of vocabulary, positions,
  // width, layers, heads, heads of keys and values, inner width, in this order. NULL: it does not.
  const char *example;
  int example_shape;          // ModelExample
  const char *const *buffers; // ends of names of tensors that are not parameters, up to NULL
};
