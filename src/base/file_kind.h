// The kind of a file, told by its first bytes: its name may be wrong, and an error of the last check that read one
// ("truncated", "not valid JSON") does not say what the file is.
#pragma once
#include <stddef.h>

typedef enum FileKind {
  FILE_KIND_ABSENT,      // also a symbolic link that leads nowhere
  FILE_KIND_FOLDER,
  FILE_KIND_UNKNOWN,     // not a regular file (a pipe, whose bytes are read once only), or not readable
  FILE_KIND_EMPTY,
  FILE_KIND_JSON,        // begins with { or [, maybe after a BOM and white space
  FILE_KIND_SAFETENSORS,
  FILE_KIND_TEXT,        // none of these, and without a NUL
  FILE_KIND_PACKED,      // gzip, zstd, zip, tar, …
  FILE_KIND_POINTER,     // stands for a file that is elsewhere: Git LFS, git-annex
  FILE_KIND_OTHER        // GGUF, pickle, HDF5, a web page, UTF-16, …, or binary data that nobody knows
} FileKind;

// Of a file. *words says it for a sentence that begins with the file's name ("is …"), with what to do about it.
FileKind file_kind(const char *path, const char **words);
// Of a file whose first bytes are given: as many as there are, FILE_KIND_HEAD are enough.
enum { FILE_KIND_HEAD = 512 };
FileKind file_kind_of(const void *head, size_t bytes, const char **words);
