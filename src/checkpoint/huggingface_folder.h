// For huggingface_load.c and huggingface_save.c: an open Hugging Face folder, checked against its model.
#pragma once
#include "checkpoint/huggingface.h"
#include "checkpoint/huggingface_views.h"
#include "checkpoint/safetensors.h"

typedef struct HuggingfaceFolder {
  const char *path; // borrowed, as the config is
  const ModelConfig *config;
  Safetensors file;
  HuggingfaceViews views;
} HuggingfaceFolder;

// The views of the model in one of its family's layouts; 0: the one that is written.
void huggingface_views_of(HuggingfaceViews *views, const ModelConfig *config, int layout);
// Opens the folder in the layout that it has, and checks that each tensor is there, of the right shape and a float, and
// no others.
int huggingface_folder_open(HuggingfaceFolder *folder, const char *path, const ModelConfig *config, Error *error);
void huggingface_folder_close(HuggingfaceFolder *folder);
// A tensor of the views in the open folder.
const SafetensorsEntry *huggingface_folder_find(const HuggingfaceFolder *folder, const HuggingfaceTensor *tensor);
