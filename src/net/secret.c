// Files with secrets, what the environment says of them, and proofs of having one.
#include "net/secret.h"
#include "base/fault.h"
#include "net/sha256.h"
#include "net/tls.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_file(int fd, const char *path, Error *error) {
  struct stat s;
  if (fstat(fd, &s)) return error_set(error, PLAIT_BAD_INPUT, "--secret %s: %s", path, strerror(errno));
  if (!S_ISREG(s.st_mode)) return error_set(error, PLAIT_BAD_INPUT, "--secret %s is not a file", path);
  if (s.st_mode & 077)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--secret %s: its mode is %03o, so others than its owner may use it; it must be 600: chmod 600 "
                     "%s",
                     path, (unsigned)(s.st_mode & 0777), path);
  if (s.st_size != SECRET_BYTES)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--secret %s has %lld bytes; it must have %d random ones: plait launch --make-secret FILE", path,
                     (long long)s.st_size, SECRET_BYTES);
  return PLAIT_OK;
}

int secret_read(const char *path, Secret *secret, Error *error) {
  int code = tls_check(error), fd = -1;
  if (code) return code;
  fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error_set(error, PLAIT_BAD_INPUT, "--secret %s: %s", path, strerror(errno));
  code = check_file(fd, path, error);
  if (!code && read(fd, secret->key, sizeof secret->key) != sizeof secret->key)
    code = error_set(error, PLAIT_FAILED, "--secret %s cannot be read: %s", path, strerror(errno));
  close(fd);
  secret->encrypts = true;
  return code;
}

static void draw(unsigned char key[SECRET_BYTES]) {
  CHECK(getrandom(key, SECRET_BYTES, 0) == SECRET_BYTES, "the system gives no random numbers");
}

int secret_make(const char *path, Error *error) {
  unsigned char key[SECRET_BYTES];
  draw(key);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return error_set(error, errno == EEXIST ? PLAIT_BAD_INPUT : PLAIT_FAILED, "--make-secret %s: %s%s", path,
                     strerror(errno), errno == EEXIST ? "; remove it first, or give another name" : "");
  int good = write(fd, key, sizeof key) == sizeof key && !fsync(fd), why = errno;
  if (close(fd)) good = 0, why = errno;
  if (good) return PLAIT_OK;
  unlink(path);
  return error_set(error, PLAIT_FAILED, "--make-secret %s: %s", path, strerror(why));
}

// The environment ----------------------------------------------------------------------------------------------------

const char secret_drawn_variable[] = "PLAIT_JOB_SECRET";

static const char *named(void) {
  const char *path = getenv("PLAIT_SECRET");
  return path && *path ? path : NULL;
}

static bool is_set(const char *variable) {
  const char *value = getenv(variable);
  return value && !strcmp(value, "1");
}

static int check_encrypts(Error *error) {
  const char *value = getenv("PLAIT_ENCRYPT");
  if (!value || !*value || !strcmp(value, "0")) return PLAIT_OK;
  if (strcmp(value, "1"))
    return error_set(error, PLAIT_BAD_INPUT, "PLAIT_ENCRYPT is \"%.40s\"; it must be 1 or 0", value);
  if (FAULT(encrypting_needs_no_secret, named() != NULL, true)) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "PLAIT_ENCRYPT is 1, which needs a secret as its key; give plait launch --secret FILE, or all "
      "ranks PLAIT_SECRET=FILE");
}

int secret_of_environment(Secret *secret, bool *there, Error *error) {
  const char *drawn = getenv(secret_drawn_variable);
  *there = true;
  int code = check_encrypts(error);
  if (code) return code;
  if (named()) return secret_read(named(), secret, error);
  if (drawn && *drawn) return secret_of_text(drawn, secret, error);
  return *there = false, PLAIT_OK;
}

bool secret_is_users(void) { return named() != NULL; }
bool secret_encrypts(void) { return is_set("PLAIT_ENCRYPT"); }
bool secret_lets_listen(void) { return named() || is_set("PLAIT_INSECURE"); }

void secret_draw(char text[SECRET_TEXT]) {
  unsigned char key[SECRET_BYTES];
  draw(key);
  for (int i = 0; i < SECRET_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", key[i]);
  explicit_bzero(key, sizeof key);
}

static int digit(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

int secret_of_text(const char *text, Secret *secret, Error *error) {
  bool good = strlen(text) == SECRET_TEXT - 1;
  *secret = (Secret){.encrypts = false};
  for (int i = 0; i < SECRET_BYTES && good; i++) {
    int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    secret->key[i] = (unsigned char)(high << 4 | low);
  }
  if (good) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED, "the secret of the job that plait launch has drawn (%s) is not one",
                   secret_drawn_variable);
}

// Proofs --------------------------------------------------------------------------------------------------------------

// purpose, NUL, the words.
void secret_proof(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                  unsigned char proof[PROOF_BYTES]) {
  Hmac hmac;
  hmac_begin(&hmac, secret->key, sizeof secret->key);
  hmac_add(&hmac, purpose, strlen(purpose) + 1);
  hmac_add(&hmac, words, (size_t)n * sizeof *words);
  hmac_end(&hmac, proof);
}

Secret secret_derive(const Secret *from, const char *purpose, const uint64_t *words, int n) {
  static const Secret none;
  Secret secret = {.encrypts = from && from->encrypts};
  secret_proof(from ? from : &none, purpose, words, n, secret.key);
  return secret;
}

bool proofs_are_equal(const unsigned char a[PROOF_BYTES], const unsigned char b[PROOF_BYTES]) {
  unsigned char differ = 0;
  for (int i = 0; i < PROOF_BYTES; i++) differ |= (unsigned char)(a[i] ^ b[i]);
  return FAULT(proofs_are_not_checked, differ == 0, true);
}
