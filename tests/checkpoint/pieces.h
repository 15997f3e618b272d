// A model whose tensors are cut into pieces in every way, and checkpoints of it.
#pragma once
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { TENSORS = 9, MAX_PIECES = 64, GUARD = 0xa5 };
typedef struct ModelTensor { const char *name; Dtype dtype; int rank; int64_t global[4]; } ModelTensor;
extern const ModelTensor model[TENSORS];

typedef enum LayoutKind { REPLICATED, ROWS, COLUMNS, GRID, ZIGZAG, UNEVEN, LAYOUTS } LayoutKind;

// All pieces of all ranks. Every array is larger than its piece, so that writes beside it show.
typedef struct Pieces {
  CheckpointTensor t[TENSORS * MAX_PIECES];
  int rank_of[TENSORS * MAX_PIECES];
  size_t bytes[TENSORS * MAX_PIECES];
  int count;
} Pieces;

// A folder of the test program's own; setup and teardown of a group of tests.
extern char folder[];
int make_folder(void **state);
int remove_folder(void **state);
char *path_in(const char *a, const char *b); // "a/b"; the caller frees it
void overwrite(const char *path, const char *data, size_t bytes);

double value_at(int i, int64_t index, int salt); // element `index` of tensor i; exact in every dtype of the table
void make_pieces(Pieces *p, LayoutKind kind, int ranks);
void fill_pieces(Pieces *p, int salt);
void check_pieces(const Pieces *p, int salt);
void free_pieces(Pieces *p);

int save(const char *dir, int64_t step, LayoutKind kind, int ranks, int salt, json_t *extra, Error *error);
void load_and_check(Checkpoint *c, LayoutKind kind, int ranks, int salt);
void save_small(const char *dir, int64_t step, float first); // x of six elements in two parts
