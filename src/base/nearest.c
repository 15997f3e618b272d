// Edit distance and the nearest of a list of words.
#include "base/nearest.h"
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b) { return a < b ? a : b; }

int nearest_distance(const char *a, const char *b) {
  int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
  int rows[3][LONGEST + 1]; // the two rows before, and this one
  for (int j = 0; j <= m; j++) rows[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = least(row[j], second[j - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

// Letters that both begin with.
static int common(const char *a, const char *b) {
  int n = 0;
  while (a[n] && a[n] == b[n]) n++;
  return n;
}

const char *nearest_word(const char *word, const char *const *candidates, int count) {
  const char *best = NULL;
  int best_distance = 0;
  for (int i = 0; i < count; i++) {
    int distance = nearest_distance(word, candidates[i]);
    if (!best || distance < best_distance ||
        (distance == best_distance && common(word, candidates[i]) > common(word, best)))
      best = candidates[i], best_distance = distance;
  }
  int length = (int)strnlen(word, LONGEST);
  if (best && best_distance <= (length < 3 ? 1 : 1 + length / 4)) return best;
  for (int i = 0; i < count; i++) { // "evaluate" for "eval"
    int same = common(word, candidates[i]);
    if (same >= 3 && (!word[same] || !candidates[i][same])) return candidates[i];
  }
  return NULL;
}
