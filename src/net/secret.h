// The secret of a job: 32 random bytes in a file that only its owner can read. Who has it may join the job.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SECRET_BYTES = 32, PROOF_BYTES = 32 };
typedef struct Secret { unsigned char key[SECRET_BYTES]; } Secret;

// PLAIT_BAD_INPUT: there is no such file, others may read or write it, or it does not have 32 bytes; a build without
// GnuTLS.
int secret_read(const char *path, Secret *secret, Error *error);
// Makes such a file. PLAIT_BAD_INPUT: it is there already.
int secret_make(const char *path, Error *error);
// That of the file which PLAIT_SECRET names, as plait launch --secret sets it for itself and its workers. *given:
// whether it names one. PLAIT_BAD_INPUT as secret_read.
int secret_of_environment(Secret *secret, bool *given, Error *error);
// May anybody listen where other machines reach it: with the secret of the environment, or as the user says so
// (PLAIT_INSECURE=1, plait launch --insecure)?
bool secret_lets_listen(void);

// HMAC-SHA256 with the secret over what `words` say: who has the secret and means them.
void secret_proof(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                  unsigned char proof[PROOF_BYTES]);
bool secret_proves(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                   const unsigned char proof[PROOF_BYTES]); // in constant time
bool proofs_are_equal(const unsigned char a[PROOF_BYTES], const unsigned char b[PROOF_BYTES]); // in constant time

bool tls_is_built(void);         // plait was built with GnuTLS
const char *tls_version(void);   // of GnuTLS; NULL: there is none, or it cannot be loaded
