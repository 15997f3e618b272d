// The secret of a job: 32 random bytes. Who has it may join the job. The user gives a file that only its owner can read
// (plait launch --secret); where none is given, plait launch draws one for the processes that it starts.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SECRET_BYTES = 32, PROOF_BYTES = 32, SECRET_TEXT = 2 * SECRET_BYTES + 1 };
typedef struct Secret {
  unsigned char key[SECRET_BYTES];
  bool encrypts; // connections are TLS; else plain, after both sides have proved to have it (net/proof.h)
} Secret;

// A file, for TLS. PLAIT_BAD_INPUT: there is no such file, others may read or write it, or it does not have 32 bytes; a
// build without GnuTLS.
int secret_read(const char *path, Secret *secret, Error *error);
// Makes such a file. PLAIT_BAD_INPUT: it is there already.
int secret_make(const char *path, Error *error);

// The one place that knows what this process's secret is: that of the file which PLAIT_SECRET names, as plait launch
// --secret sets it for itself and its workers, and which is for TLS; else, for proofs alone, the one that plait launch
// has drawn for its workers. *there: whether there is one. PLAIT_BAD_INPUT: as secret_read; PLAIT_ENCRYPT asks for what
// needs the user's secret.
int secret_of_environment(Secret *secret, bool *there, Error *error);
bool secret_is_users(void);   // the user has given it, for all that the job says
// The data of ranks goes by TLS, too (PLAIT_ENCRYPT=1, plait launch --encrypt). A carrier of messages that cannot
// encrypt them refuses it; secret_of_environment has refused it where the user has given no secret.
bool secret_encrypts(void);
// May anybody listen where other machines reach it: with the user's secret, or as the user says so (PLAIT_INSECURE=1,
// plait launch --insecure)?
bool secret_lets_listen(void);

// A new one, as text for the environment of a job's processes, where this variable has it.
void secret_draw(char text[SECRET_TEXT]);
extern const char secret_drawn_variable[];
// PLAIT_FAILED: the text is none. The secret is for proofs.
int secret_of_text(const char *text, Secret *secret, Error *error);
// One that only follows from another (NULL: from the words alone), for one purpose. It encrypts as the other does.
Secret secret_derive(const Secret *from, const char *purpose, const uint64_t *words, int n);

// HMAC-SHA256 with the secret over what `words` say: who has the secret and means them.
void secret_proof(const Secret *secret, const char *purpose, const uint64_t *words, int n,
                  unsigned char proof[PROOF_BYTES]);
bool proofs_are_equal(const unsigned char a[PROOF_BYTES], const unsigned char b[PROOF_BYTES]); // in constant time

bool tls_is_built(void);         // plait was built with GnuTLS
const char *tls_version(void);   // of GnuTLS; NULL: there is none, or it cannot be loaded
