// Names the file when a mapped file can no longer be read: it was truncated while in use, or its disk is failing.
#pragma once
#include <stddef.h>

// Maps that are known by name; more than 1,024 at a time are not. Any thread.
void map_guard_add(const char *path, const void *data, size_t size);
void map_guard_remove(const void *data); // before it is unmapped

// For programs: on SIGBUS inside a known map, "plait: FILE: …" on stderr and exit status 1, instead of death by the
// signal.
void map_guard_install(void);
