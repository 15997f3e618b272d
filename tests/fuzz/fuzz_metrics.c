// metrics.jsonl: any bytes are read as series and cut; byte 0 is the step to cut after. A second cut finds nothing to
// do.
#include "fuzz.h"
#include "train/metrics.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int64_t step = fuzz_byte(&data, &size) & 15;
  fuzz_file("metrics.jsonl", data, size);
  MetricsSeries before, after;
  Error error = {0};
  int code = metrics_read("metrics.jsonl", "loss", &before, &error);
  CHECK(!code, "%s", error.message);
  code = metrics_truncate_after("metrics.jsonl", step, &error);
  CHECK(!code, "%s", error.message);
  code = metrics_read("metrics.jsonl", "loss", &after, &error);
  CHECK(!code && after.count <= before.count, "%s", error.message);
  for (int i = 0; i < after.count; i++) CHECK(after.step[i] <= step);
  size_t cut_size, again_size;
  const void *cut = fuzz_file_data("metrics.jsonl", &cut_size);
  code = metrics_truncate_after("metrics.jsonl", step, &error);
  CHECK(!code && cut_size <= size && fuzz_file_data("metrics.jsonl", &again_size) == cut && again_size == cut_size,
        "cut twice");
  metrics_series_free(&before);
  metrics_series_free(&after);
  fuzz_files_clear();
  return 0;
}
