// What etcd answers, and addresses of it. The first byte chooses what is read. Any bytes are an answer within the
// limits, or none; what was read from base64 is written as the same text.
#include "elastic/store_etcd_parse.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static void read_value(int good, const StoreValue *now, bool has_data) {
  if (!good) CHECK(!now->data && !now->version);
  if (good && has_data) CHECK(!now->version == !now->data && now->bytes <= STORE_VALUE);
  if (now->data) CHECK(!((char *)now->data)[now->bytes]);
}

static void read_base64(const char *text, size_t size) {
  size_t bytes = 0;
  char *data = etcd_unbase64(text, size, &bytes);
  if (!data) return;
  CHECK(bytes <= size / 4 * 3);
  char *again = etcd_base64(data, bytes);
  size_t whole = bytes / 3 * 4; // bits after the last byte are not kept
  CHECK(strlen(again) == size && !memcmp(again, text, whole));
  free(again);
  free(data);
}

static void read_url(const char *text) {
  EtcdUrl url;
  Error error = {0};
  char described[400];
  fuzz_check(etcd_url_parse(text, &url, &error), &error);
  if (error.code) return;
  CHECK(url.count > 0 && url.count <= ETCD_ENDPOINTS);
  etcd_url_describe(text, described, sizeof described);
  CHECK(!strchr(described, '@'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned choice = fuzz_byte(&data, &size);
  char *text = xcalloc(size + 1, 1), token[ETCD_NAME], sentence[100];
  if (size) memcpy(text, data, size);
  StoreValue now = {0};
  uint64_t number = 0;
  double seconds = 0;
  bool a = false, b = false;
  switch (choice) {
  case 'g': read_value(etcd_take_get(text, size, &now, &number), &now, true); break;
  case 's': {
    int good = etcd_take_set(text, size, &a, &now);
    read_value(good, &now, !a);
    if (good && a) CHECK(now.version && !now.data);
    break;
  }
  case 'l':
    if (etcd_take_lease(text, size, &number, &seconds)) CHECK(number && seconds >= 0);
    break;
  case 't':
    if (etcd_take_token(text, size, token)) CHECK(*token && !strpbrk(token, "\r\n"));
    break;
  case 'k': etcd_take_leased(text, size, 1, 2, &a); break;
  case 'w': etcd_take_watch(text, size, &a, &b); break;
  case 'e':
    etcd_take_trouble(text, size, sentence, sizeof sentence);
    CHECK(strlen(sentence) < sizeof sentence && !strpbrk(sentence, "\r\n\033"));
    break;
  case 'u': read_url(text); break;
  default: read_base64(text, size);
  }
  store_value_free(&now);
  free(text);
  return 0;
}
