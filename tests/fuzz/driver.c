// Runs a fuzz target without libFuzzer: all seeds, then RUNS inputs that are mutated or crossed seeds. Blind, but fast.
//   fuzz_x [-runs=N] [-seed=N] [-max_len=N] [FILE or FOLDER …]; other options of libFuzzer are ignored.
// An input that crashes is left in ./crash-input (with sanitizers: under abort_on_error=1, as scripts/fuzz sets).
#include "fuzz.h"
#include "base/vec.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Seed {
  uint8_t *data;
  size_t size;
} Seed;
typedef Vec(Seed) Seeds;

static const uint8_t *current; // for the signal handler
static size_t current_size;

static void write_crash(int number) {
  FILE *f = fopen("crash-input", "wb");
  if (f) fwrite(current, 1, current_size, f), fclose(f);
  fprintf(stderr, "the input of %zu bytes is in ./crash-input\n", current_size);
  signal(number, SIG_DFL);
  raise(number);
}

static uint64_t next(uint64_t *state) { // xorshift64*
  *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
  return *state * 2685821657736338717ull;
}
static size_t below(uint64_t *state, size_t n) { return n ? (size_t)(next(state) >> 11) % n : 0; }

static void read_seed(Seeds *seeds, const char *path, size_t max) {
  FILE *f = fopen(path, "rb");
  CHECK(f, "%s cannot be read", path);
  Seed s = {xcalloc(max, 1), 0};
  s.size = fread(s.data, 1, max, f);
  fclose(f);
  vec_push(seeds, s);
}

static void read_seeds(Seeds *seeds, const char *path, size_t max) {
  DIR *folder = opendir(path);
  if (!folder) {
    read_seed(seeds, path, max);
    return;
  }
  for (struct dirent *e; (e = readdir(folder));) {
    if (*e->d_name == '.') continue;
    char *file = xformat("%s/%s", path, e->d_name);
    read_seed(seeds, file, max);
    free(file);
  }
  closedir(folder);
}

static void run(const uint8_t *data, size_t size) {
  uint8_t *exact = malloc(size ? size : 1);
  CHECK(exact);
  if (size) memcpy(exact, data, size);
  current = exact, current_size = size;
  LLVMFuzzerTestOneInput(exact, size);
  free(exact);
}

// One change to data (size of max): returns the new size.
static size_t mutate(uint64_t *random, uint8_t *data, size_t size, size_t max, const Seeds *seeds) {
  static const char *const words[] = {"0",          "-1",    "9223372036854775807",
                                      "4294967296", "1e308", "null",
                                      "true",       "[]",    "{}",
                                      "\"\"",       "[",     "{",
                                      "\\u0000",    ":",     ",",
                                      "\n"};
  size_t at = below(random, size + 1), n;
  switch (below(random, 8)) {
  case 0:
    if (at < size) data[at] ^= (uint8_t)(1u << below(random, 8));
    break;
  case 1:
    if (at < size) data[at] = (uint8_t)next(random);
    break;
  case 2:
    if (at < size) data[at] = (uint8_t)(data[at] + (below(random, 2) ? 1 : -1));
    break;
  case 3: // drop a piece
    n = below(random, size - at < 32 ? size - at + 1 : 33);
    memmove(data + at, data + at + n, size - at - n);
    return size - n;
  case 4: { // a word
    const char *word = words[below(random, sizeof words / sizeof *words)];
    n = strlen(word);
    if (size + n > max) break;
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, word, n);
    return size + n;
  }
  case 5: { // a piece of a seed
    const Seed *s = &seeds->data[below(random, (size_t)seeds->count)];
    size_t from = below(random, s->size + 1);
    n = below(random, s->size - from < 64 ? s->size - from + 1 : 65);
    if (size + n > max) break;
    memmove(data + at + n, data + at, size - at);
    if (n) memcpy(data + at, s->data + from, n);
    return size + n;
  }
  case 6: // a piece twice
    n = below(random, size - at < 32 ? size - at + 1 : 33);
    if (size + n > max) break;
    memmove(data + at + n, data + at, size - at);
    return size + n;
  case 7: return at; // cut
  }
  return size;
}

static long option(const char *argument, const char *name) {
  size_t n = strlen(name);
  return !strncmp(argument, name, n) ? strtol(argument + n, NULL, 10) : -1;
}

int main(int argc, char **argv) {
  long runs = 1000, seed = 1, max = 4096, v;
  for (int i = 1; i < argc; i++) {
    if ((v = option(argv[i], "-runs=")) >= 0) runs = v;
    if ((v = option(argv[i], "-seed=")) > 0) seed = v;
    if ((v = option(argv[i], "-max_len=")) > 0) max = v;
  }
  Seeds seeds = {0};
  for (int i = 1; i < argc; i++)
    if (*argv[i] != '-') read_seeds(&seeds, argv[i], (size_t)max);
  if (!seeds.count) vec_push(&seeds, (Seed){xcalloc(1, 1), 0});
  signal(SIGABRT, write_crash), signal(SIGSEGV, write_crash), signal(SIGFPE, write_crash), signal(SIGBUS, write_crash);
  for (int i = 0; i < seeds.count; i++) run(seeds.data[i].data, seeds.data[i].size);
  uint64_t random = (uint64_t)seed * 0x9e3779b97f4a7c15ull | 1;
  uint8_t *data = xcalloc((size_t)max, 1);
  for (long r = 0; r < runs; r++) {
    const Seed *s = &seeds.data[below(&random, (size_t)seeds.count)];
    size_t size = s->size;
    if (size) memcpy(data, s->data, size);
    for (size_t k = 1 + below(&random, 8); k; k--) size = mutate(&random, data, size, (size_t)max, &seeds);
    run(data, size);
  }
  printf("%d seeds and %ld mutated inputs\n", seeds.count, runs);
  free(data);
  for (int i = 0; i < seeds.count; i++) free(seeds.data[i].data);
  vec_free(&seeds);
  return 0;
}
