// Files with secrets, and proofs of having one.
#include "net/secret.h"
#include "base/fault.h"
#include "net/sha256.h"
#include "net/tls.h"
#include <errno.h>
#include <fcntl.h>
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
  return code;
}

int secret_make(const char *path, Error *error) {
  Secret secret;
  if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
    return error_set(error, PLAIT_FAILED, "the system gives no random numbers: %s", strerror(errno));
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return error_set(error, errno == EEXIST ? PLAIT_BAD_INPUT : PLAIT_FAILED, "--make-secret %s: %s%s", path,
                     strerror(errno), errno == EEXIST ? "; remove it first, or give another name" : "");
  int good = write(fd, &secret, sizeof secret) == sizeof secret && !fsync(fd), why = errno;
  if (close(fd)) good = 0, why = errno;
  if (good) return PLAIT_OK;
  unlink(path);
  return error_set(error, PLAIT_FAILED, "--make-secret %s: %s", path, strerror(why));
}

static const char *named(void) {
  const char *path = getenv("PLAIT_SECRET");
  return path && *path ? path : NULL;
}

int secret_of_environment(Secret *secret, bool *given, Error *error) {
  *given = named() != NULL;
  return *given ? secret_read(named(), secret, error) : PLAIT_OK;
}

bool secret_lets_listen(void) {
  const char *insecure = getenv("PLAIT_INSECURE");
  return named() || (insecure && !strcmp(insecure, "1"));
}

// purpose, NUL, the words.
void secret_proof(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                  unsigned char proof[PROOF_BYTES]) {
  Hmac hmac;
  hmac_begin(&hmac, secret->key, sizeof secret->key);
  hmac_add(&hmac, purpose, strlen(purpose) + 1);
  hmac_add(&hmac, words, (size_t)n * sizeof *words);
  hmac_end(&hmac, proof);
}

bool proofs_are_equal(const unsigned char a[PROOF_BYTES], const unsigned char b[PROOF_BYTES]) {
  unsigned char differ = 0;
  for (int i = 0; i < PROOF_BYTES; i++) differ |= (unsigned char)(a[i] ^ b[i]);
  return FAULT(proofs_are_not_checked, differ == 0, true);
}

bool secret_proves(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                   const unsigned char proof[PROOF_BYTES]) {
  unsigned char mine[PROOF_BYTES];
  secret_proof(secret, purpose, words, n, mine);
  return proofs_are_equal(mine, proof);
}
