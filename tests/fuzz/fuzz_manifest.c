// checkpoint.json after its checksum: the text as JSON, checked as a manifest.
#include "checkpoint/manifest.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
  if (!json) return 0;
  Manifest manifest = {0};
  Error error = {0};
  int code = manifest_parse(&manifest, json, "checkpoint.json", &error);
  fuzz_check(code, &error);
  manifest_free(&manifest);
  return 0;
}
