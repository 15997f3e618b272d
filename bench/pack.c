// Packs rectangles of a file: bench_pack FILE [EFFORT [PERCENT]]. Lines "id,lower,upper,size" (times half-open) below a
// header, as MiniMalloc's benchmarks have them (github.com/google/minimalloc). Prints "id,lower,upper,size,offset",
// then the end, the bound, their ratio, and how long it took. It stops at a given percentage above the bound (0), or
// after so much effort (pack.h): forty times that of tests, some seconds, where a memory plan takes 16 million, 50 ms.
#include "base/clock.h"
#include "program/pack/pack.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 6 }; // the last two may be missing: items of two owners of one set never meet
typedef struct Name { char text[32]; } Name;

// By the header's names: columns may come in any order, and others are left out.
static int read_columns(char *header, int column[COLUMNS]) {
  static const char *const names[] = {"id", "lower", "upper", "size", "owners", "owner"};
  int at = 0, known = 0;
  for (int i = 0; i < COLUMNS; i++) column[i] = -1;
  for (char *word = strtok(header, ",\r\n"); word; word = strtok(NULL, ",\r\n"), at++)
    for (int i = 0; i < COLUMNS; i++)
      if (!strcmp(word, names[i])) column[i] = at, known += i < 4;
  return known == 4;
}

static int read_line(char *line, const int column[COLUMNS], Name *name, PackTime *time,
                     PackItem *item) {
  int at = 0, known = 0;
  for (char *word = strtok(line, ",\r\n"); word; word = strtok(NULL, ",\r\n"), at++) {
    if (at == column[0]) known += snprintf(name->text, sizeof name->text, "%s", word) > 0;
    if (at == column[1]) known += sscanf(word, "%d", &time->lower) == 1;
    if (at == column[2]) known += sscanf(word, "%d", &time->upper) == 1;
    if (at == column[3]) known += sscanf(word, "%" SCNd64, &item->size) == 1;
    if (at == column[4]) item->owners = (uint32_t)strtoul(word, NULL, 10);
    if (at == column[5]) item->owner = atoi(word);
  }
  return known == 4 && time->lower < time->upper && item->size > 0;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: bench_pack FILE [EFFORT (2000000000: some seconds) [PERCENT (0)]]\n"), 2;
  FILE *file = fopen(argv[1], "r");
  char line[1024];
  int column[COLUMNS];
  if (!file) return perror(argv[1]), 1;
  if (!fgets(line, sizeof line, file) || !read_columns(line, column))
    return fprintf(stderr, "%s: the first line must name the columns id, lower, upper and size\n", argv[1]), 2;
  PackProblem p = {0};
  Vec(Name) names = {0};
  for (int number = 2; fgets(line, sizeof line, file); number++) {
    Name name = {""};
    PackTime time = {0, 0};
    PackItem item = {.first = p.time.count, .count = 1};
    if (!read_line(line, column, &name, &time, &item))
      return fprintf(stderr, "%s: line %d must have id, lower < upper and size > 0\n", argv[1], number), 2;
    vec_push(&p.time, time);
    if (names.count && !strcmp(names.data[names.count - 1].text, name.text)) {
      p.item.data[p.item.count - 1].count++;
      continue;
    }
    vec_push(&names, name);
    vec_push(&p.item, item);
  }
  fclose(file);
  int64_t bound = pack_bound(&p, NULL);
  p.enough = argc > 3 ? bound + (int64_t)((double)bound * atof(argv[3]) / 100) : bound;
  double begin = clock_process_seconds();
  int64_t end = pack(&p, argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_C(40) * PACK_EFFORT);
  double took = clock_process_seconds() - begin;
  printf("id,lower,upper,size,offset\n");
  for (int i = 0; i < p.item.count; i++)
    for (int t = 0; t < p.item.data[i].count; t++)
      printf("%s,%d,%d,%" PRId64 ",%" PRId64 "\n", names.data[i].text, p.time.data[p.item.data[i].first + t].lower,
             p.time.data[p.item.data[i].first + t].upper, p.item.data[i].size, p.item.data[i].offset);
  printf("# %d items: end %" PRId64 ", bound %" PRId64 ", ratio %.4f; %.1f ms\n", p.item.count, end, bound,
         bound ? (double)end / (double)bound : 1, 1e3 * took);
  vec_free(&names);
  pack_free(&p);
  return 0;
}
