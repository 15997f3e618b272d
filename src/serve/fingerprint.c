// Hashing a model's files by samples: the whole of a large one takes longer than loading it.
#include "serve/fingerprint.h"
#include "base/hash.h"
#include "device/cpu/cpu.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SAMPLES = 64, SAMPLE = 16 << 10, DEPTH = 4 };

static uint64_t hash_bytes(uint64_t h, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) h = (h ^ (unsigned char)bytes[i]) * 1099511628211u;
  return h;
}

static uint64_t hash_file(uint64_t h, const char *path, int64_t bytes) {
  static const int64_t step_least = SAMPLE;
  char *sample = xcalloc(SAMPLE, 1);
  FILE *f = fopen(path, "re");
  int64_t step = bytes / SAMPLES > step_least ? bytes / SAMPLES : step_least;
  for (int64_t at = 0; f && at < bytes; at += step) {
    if (fseeko(f, at, SEEK_SET)) break;
    h = hash_bytes(h, sample, fread(sample, 1, SAMPLE, f));
  }
  if (f) fclose(f);
  free(sample);
  return hash_mix(h, (uint64_t)bytes);
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static bool holds_weights(const char *name) {
  const char *dot = strrchr(name, '.');
  return !dot || !strcmp(dot, ".safetensors") || !strcmp(dot, ".json") || !strcmp(dot, ".bin") || !strcmp(dot, ".gguf");
}

static uint64_t hash_folder(uint64_t h, const char *path, int depth) {
  struct dirent **entries = NULL;
  int count = scandir(path, &entries, is_visible, alphasort);
  for (int i = 0; i < count; i++) {
    char *file = xformat("%s/%s", path, entries[i]->d_name);
    struct stat s;
    if (!stat(file, &s)) {
      if (S_ISDIR(s.st_mode) && depth) h = hash_folder(h, file, depth - 1);
      else if (S_ISREG(s.st_mode) && holds_weights(entries[i]->d_name))
        h = hash_mix(hash_file(h, file, s.st_size), hash_text(entries[i]->d_name));
    }
    free(file);
    free(entries[i]);
  }
  free(entries);
  return h;
}

void fingerprint_of(const Inference *m, char text[40]) {
  const Recipe *r = &m->recipe;
  char *how = xformat("pp %d dp %d cp %d tp %d, precision %d, %s, plait %s", r->mesh.pp, r->mesh.dp, r->mesh.cp,
                      r->mesh.tp, (int)r->precision, cpu_level_name(cpu_simd_level()), PLAIT_VERSION);
  uint64_t h = hash_folder(hash_text(how), m->source->path, DEPTH);
  snprintf(text, 40, "plait-%016llx", (unsigned long long)h);
  free(how);
}
