// Files: read whole, map, and write whole or not at all (temporary name, fsync, rename, fsync of the folder).
#pragma once
#include "base/error.h"
#include <stdint.h>
#include <stdio.h>

// Reads a file of at most max_bytes into memory that the caller frees; a NUL follows the content.
int file_read(const char *path, size_t max_bytes, char **data, size_t *size, Error *error);

// The start of a small file in the caller's memory, a NUL after it. 0, or -errno where it cannot be read, which is not
// always because there is none: "" then. Allocates nothing.
int file_peek(const char *path, char *text, size_t size);

// A read-only memory map of a whole file; an empty file gives data NULL.
typedef struct FileMap { const uint8_t *data; size_t size; } FileMap;
int file_map(const char *path, FileMap *map, Error *error);
void file_unmap(FileMap *map);

// open() with mode 0666 and close-on-exec, but never as one of the descriptors 0 to 2: where an application has closed
// these, what anybody prints must not land in the file. -1 and errno when it fails.
int file_open(const char *path, int flags);
// For programs, before all else: of the descriptors 0 to 2, those that are closed read and write /dev/null.
int file_open_standard(Error *error);

// Opens PATH.tmp.PID for writing; file_commit syncs and renames it to PATH; file_abandon removes it. `stream` is for
// files that file_begin opened.
typedef struct AtomicFile {
  FILE *stream;
  char *path, *temporary;
  char *block;   // of a large file: what has not been written yet; else NULL
  size_t filled; // its bytes
} AtomicFile;
int file_begin(AtomicFile *file, const char *path, Error *error);
// The same for files of gigabytes, which are written by file_write alone. Where the file system can (O_DIRECT), they
// bypass the page cache: copying 1.5 GB into it took 3.6 core seconds, which threads that compute then lack.
int file_begin_large(AtomicFile *file, const char *path, Error *error);
// 0, or an errno (EIO where the reason was lost). The file is to be abandoned then.
int file_write(AtomicFile *file, const void *data, size_t bytes);
int file_commit(AtomicFile *file, Error *error);
void file_abandon(AtomicFile *file); // also safe after a commit or a failed begin
// Whether a file of that name could be written, before the work whose result it is to hold: PLAIT_BAD_INPUT for a
// folder, else as file_begin. Leaves no file.
int file_check_writable(const char *path, Error *error);

// "PATH: cannot be written: WHY", and PLAIT_FAILED, or PLAIT_UNWRITABLE where another try would fail in the same way
// (a full disk, a quota, a limit, a missing right). `why` is an errno, 0 where it was lost. Where the file system is
// full, or a quota is used up, the sentence says which one, how much is free, and that the file needs at least `bytes`
// (0: not known).
int file_write_failed(const char *path, int why, double bytes, Error *error);

int file_exists(const char *path);
int file_is_folder(const char *path); // follows symbolic links
int folder_create(const char *path, Error *error); // with parents, as mkdir -p
// The same for a folder that the user has named, which must be writable. PLAIT_BAD_INPUT: a file is in its place, or a
// right is missing, which another try does not mend; PLAIT_UNWRITABLE: a full disk; PLAIT_FAILED: all else.
int folder_create_given(const char *path, Error *error);
int folder_sync(const char *path, Error *error);
// With all that is in it; a missing folder is fine. A symbolic link is removed, never what it points to.
int folder_remove(const char *path, Error *error);
// Puts the folder `from` where the folder `to` is, in one step where the file system can, and removes the old one. When
// it fails, `to` is as before, or the sentence says where it is; `from` stays the caller's.
int folder_replace(const char *from, const char *to, Error *error);
// The same in two steps, as file systems need it that cannot exchange names; between the two there is no `to`.
int folder_replace_slowly(const char *from, const char *to, Error *error);
